"""The page of one record, what is done from it, and the files it gives out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.files.storage import default_storage
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from recognition.models import Recognition
from records.admin import words
from records.admin.acts import RecordActs, acting
from records.admin.page import MORE_UTTERANCES, head_of, page_of, stretch_of
from records.models import AudioRecord, File
from records.operations import control, edit, selection
from records.states import FINAL, HaltReason, State
from records.storage import serving

TEMPLATES = "admin/records/audiorecord"


class RecordPages(RecordActs):
    """Everything below /admin/records/audiorecord/<id>/."""

    def get_urls(self) -> list[URLPattern]:
        views: list[tuple[str, str, Callable[..., HttpResponseBase]]] = [
            ("halt", "halt/", self.halt_one),
            ("resume", "resume/", self.resume_one),
            ("restart", "restart/", self.restart_one),
            ("confirm", "confirm/", self.confirm_one),
            ("head", "head/", self.head_of_one),
            ("utterances", "utterances/", self.utterances_of_one),
            ("audio", "audio/<str:kind>/", self.audio_of_one),
            ("file", "files/<str:kind>/", self.file_of_one),
            ("transcript", "transcript.<str:kind>", self.transcript_of_one),
            ("payload", "recognitions/<uuid:recognition_id>/payload/", self.payload_of_one),
        ]
        own = [
            path(f"<uuid:object_id>/{route}", self.admin_site.admin_view(view), name=f"records_audiorecord_{name}")
            for name, route, view in views
        ]
        return own + super().get_urls()

    # ---- the page -----------------------------------------------------------------------------------------------------------------

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        record = kwargs.get("obj")
        if record is not None:
            with gone_is_404():
                context.update(page_of(record.pk, now=timezone.now()))
        return super().render_change_form(request, context, *args, **kwargs)

    def head_of_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        """The head of the page alone, for a page that is open: how the record stands by now."""
        self._get_for_reading(request, object_id)
        with gone_is_404():
            head = head_of(object_id, now=timezone.now())
        context = {"head": head, "has_change_permission": self.has_change_permission(request)}
        return TemplateResponse(request, f"{TEMPLATES}/head.html", context, headers={"Cache-Control": "no-store"})

    def utterances_of_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        """More utterances: those from number `from` on."""
        record = self._get_for_reading(request, object_id, "structure")
        start = request.GET.get("from", "0")
        if record.structure is None or not start.isdecimal() or len(start) > 9:
            raise Http404
        stretch = stretch_of(record.structure.contents, start=int(start), number=MORE_UTTERANCES)
        return TemplateResponse(request, f"{TEMPLATES}/utterances.html", {"record": record, "stretch": stretch})

    def save_model(self, request: HttpRequest, obj: AudioRecord, form: Any, change: bool) -> None:
        # Not the whole row: its queue columns are as old as the page, and a worker may have written since. The state is asked for first.
        changes = {name: form.cleaned_data[name] for name in form.changed_data if name != "state"}
        if changes:
            edit.edit(AudioRecord.objects.filter(pk=obj.pk), now=timezone.now(), **changes)

    def response_change(self, request: HttpRequest, obj: AudioRecord) -> HttpResponse:
        """Back to the page; where another state was chosen, to the question whether to restart from it."""
        state = request.POST.get("state", "")
        if state in State.values and state != FINAL and state != request.POST.get("initial-state"):
            return HttpResponseRedirect(f"{reverse('admin:records_audiorecord_restart', args=[obj.pk])}?state={state}")
        self.message_user(request, _("Saved."), messages.SUCCESS)
        return HttpResponseRedirect(_page_url(obj.pk))

    # ---- unconfirmed submissions ----------------------------------------------------------------------------------------------------

    def confirm_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        """Answer for a paid submission whose outcome is unknown: the operation's id, or submit again. Each is ticked off before it is done."""
        record = get_object_or_404(AudioRecord.objects.select_related("recognition", "normalized_file"), pk=object_id)
        if not self.has_change_permission(request, record):
            raise PermissionDenied
        answer, external_id = request.POST.get("answer", ""), request.POST.get("external_id", "").replace("\0", "").strip()
        complaint = ""
        try:
            with gone_is_404():
                head = head_of(object_id, now=timezone.now())
            if not head.can_confirm:
                raise control.AnswerKnown if head.record.halt_reason == HaltReason.UNCONFIRMED else control.NotUnconfirmed
            if request.method == "POST":
                complaint = self._complaint(answer, external_id, is_ticked="confirmed" in request.POST)
                if not complaint:
                    control.confirm_submission(
                        record, external_id=external_id if answer == "id" else None, by=acting(request), now=timezone.now()
                    )
                    done = (
                        _("It goes on: the operation is polled.") if answer == "id" else _("It is submitted again, as a new recognition.")
                    )
                    self.message_user(request, done, messages.SUCCESS)
                    return HttpResponseRedirect(_page_url(object_id))
        except control.NotUnconfirmed:
            self.message_user(request, _("This record does not stand as unconfirmed any more."), messages.WARNING)
            return HttpResponseRedirect(_page_url(object_id))
        except control.AnswerKnown:
            self.message_user(
                request, _("Its operation is known by now: resume the record, nothing needs to be paid again."), messages.WARNING
            )
            return HttpResponseRedirect(_page_url(object_id))
        except control.IdKnownElsewhere:
            complaint = _("That operation belongs to another recognition already.")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": _("Unconfirmed submission"),
            "record": record,
            "recognition": record.recognition,
            "length": record.normalized_file and words.clock(record.normalized_file.duration_ms or 0),
            "costs_money": record.recognition is None or selection.costs_money(record.recognition.provider),
            "complaint": complaint,
            "answer": answer,
            "external_id": external_id,
            "is_ticked": "confirmed" in request.POST,
            "back": _page_url(object_id),
        }
        return TemplateResponse(request, f"{TEMPLATES}/confirm.html", context)

    @staticmethod
    def _complaint(answer: str, external_id: str, *, is_ticked: bool) -> str:
        """What is wrong with an answer; empty where nothing is."""
        if answer not in ("id", "again"):
            return _("Choose one of the two.")
        if answer == "id" and not 0 < len(external_id) <= 50:
            return _("An operation's id has 1 to 50 characters.")
        return "" if is_ticked else _("Tick that you have looked it up at the provider.")

    # ---- what it gives out ----------------------------------------------------------------------------------------------------------

    def audio_of_one(self, request: HttpRequest, object_id: uuid.UUID, kind: str) -> HttpResponseBase:
        """The original or the normalized file for the player: sound of a format that is known, and nothing else."""
        file = self._file(request, object_id, kind)
        if file.format not in serving.TYPES:
            raise Http404
        content_type, extension = serving.TYPES[file.format]
        return _served(request, file, name=f"{object_id}-{kind}.{extension}", content_type=content_type, attachment=False)

    def file_of_one(self, request: HttpRequest, object_id: uuid.UUID, kind: str) -> HttpResponseBase:
        """The original or the normalized file, as a download: what was sent in must not run in the admin's name."""
        file = self._file(request, object_id, kind)
        _type, extension = serving.TYPES.get(file.format, ("", "bin"))
        return _served(request, file, name=f"{object_id}-{kind}.{extension}", content_type="application/octet-stream", attachment=True)

    def _file(self, request: HttpRequest, object_id: uuid.UUID, kind: str) -> File:
        record = self._get_for_reading(request, object_id, "original_file", "normalized_file")
        file = {"original": record.original_file, "normalized": record.normalized_file}.get(kind)
        if file is None:
            raise Http404
        return file

    def transcript_of_one(self, request: HttpRequest, object_id: uuid.UUID, kind: str) -> HttpResponse:
        """The transcript as txt, srt, vtt or json."""
        if kind not in serving.TRANSCRIPT_TYPES:
            raise Http404
        record = self._get_for_reading(request, object_id, "structure")
        written = serving.transcript_as(record, kind)
        if written is None:
            raise Http404
        name = f'attachment; filename="{object_id}.{kind}"'
        return HttpResponse(written, content_type=serving.content_type_of(kind), headers={"Content-Disposition": name, **GUARDED})

    def payload_of_one(self, request: HttpRequest, object_id: uuid.UUID, recognition_id: uuid.UUID) -> FileResponse:
        """The provider's raw answer."""
        record = self._get_for_reading(request, object_id)
        recognition = get_object_or_404(Recognition.objects.exclude(payload=""), pk=recognition_id, record=record)
        try:
            file = default_storage.open(str(recognition.payload))
        except FileNotFoundError:
            raise Http404 from None
        return FileResponse(
            file, as_attachment=True, filename=f"{recognition.pk}.raw", content_type="application/octet-stream", headers=GUARDED
        )

    def _get_for_reading(self, request: HttpRequest, object_id: uuid.UUID, *related: str) -> AudioRecord:
        records = AudioRecord.objects.select_related(*related) if related else AudioRecord.objects.all()
        record = get_object_or_404(records, pk=object_id)
        if not self.has_view_permission(request, record):
            raise PermissionDenied
        return record


@contextmanager
def gone_is_404() -> Iterator[None]:
    """A record may be removed between two looks at it."""
    try:
        yield
    except AudioRecord.DoesNotExist:
        raise Http404 from None


GUARDED = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
"""What was sent in, or came from a provider, is nothing that a browser should run, whatever it takes it for."""


def _page_url(record_id: uuid.UUID) -> str:
    return reverse("admin:records_audiorecord_change", args=[record_id])


def _served(request: HttpRequest, file: File, *, name: str, content_type: str, attachment: bool) -> HttpResponseBase:
    try:
        answer = serving.serve(request, file, name=name, content_type=content_type, attachment=attachment)
    except serving.NoSuchRange as beyond:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{beyond.size}"})
    except FileNotFoundError:
        raise Http404 from None
    for header, value in GUARDED.items():
        answer[header] = value
    # A restart puts another file at the same address, and a right that was taken away is to be gone.
    answer["Cache-Control"] = "private, no-cache"
    return answer
