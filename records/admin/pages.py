"""The page of one record, what is done from it, and the files it gives out."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.files.storage import default_storage
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from recognition.models import Recognition
from records.admin.acts import RecordActs, acting
from records.admin.page import page_of
from records.models import AudioRecord
from records.operations import control, edit


class RecordPages(RecordActs):
    """Everything below /admin/records/audiorecord/<id>/."""

    def get_urls(self) -> list[URLPattern]:
        views: list[tuple[str, str, Callable[..., HttpResponseBase]]] = [
            ("halt", "halt/", self.halt_one),
            ("resume", "resume/", self.resume_one),
            ("restart", "restart/", self.restart_one),
            ("confirm", "confirm/", self.confirm_one),
            ("file", "files/<str:kind>/", self.file_of_one),
            ("payload", "recognitions/<uuid:recognition_id>/payload/", self.payload_of_one),
        ]
        own = [
            path(f"<uuid:object_id>/{route}", self.admin_site.admin_view(view), name=f"records_audiorecord_{name}")
            for name, route, view in views
        ]
        return own + super().get_urls()

    def halt_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        return self._act_on_one(request, object_id, self.halt)

    def resume_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        return self._act_on_one(request, object_id, self.resume)

    def restart_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        record = self._get(object_id)
        if not self.has_change_permission(request, record):
            raise PermissionDenied
        page = _page_url(object_id)
        return self._restart(request, AudioRecord.objects.filter(pk=object_id), carried=[], back=page) or HttpResponseRedirect(page)

    def confirm_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        """Answer for a paid submission whose outcome is unknown: the operation's id, or submit again. Each is ticked off before it is done."""
        record = self._get(object_id)
        if not self.has_change_permission(request, record):
            raise PermissionDenied
        complaint = ""
        if request.method == "POST":
            external_id = request.POST.get("external_id", "").strip()
            if "confirmed" not in request.POST:
                complaint = "Tick that you have looked it up at the provider."
            elif request.POST.get("answer") == "id" and not 0 < len(external_id) <= 50:
                complaint = "An operation's id has 1 to 50 characters."
            elif request.POST.get("answer") in ("id", "again"):
                complaint = self._confirm(request, record, external_id if request.POST["answer"] == "id" else None)
                if not complaint:
                    return HttpResponseRedirect(_page_url(object_id))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": "Unconfirmed submission",
            "record": record,
            "recognition": record.recognition,
            "complaint": complaint,
            "external_id": request.POST.get("external_id", ""),
            "back": _page_url(object_id),
        }
        return TemplateResponse(request, "admin/records/audiorecord/confirm.html", context)

    def _confirm(self, request: HttpRequest, record: AudioRecord, external_id: str | None) -> str:
        """What is wrong; empty once it is done."""
        try:
            control.confirm_submission(record, external_id=external_id, by=acting(request), now=timezone.now())
        except control.NotUnconfirmed:
            return "This record does not stand as unconfirmed any more."
        except control.AnswerKnown:
            return "Its operation is known by now: resume the record, nothing needs to be paid again."
        except control.IdKnownElsewhere:
            return "That operation belongs to another recognition already."
        self.message_user(
            request, "It goes on: the operation is polled." if external_id else "It is submitted again, as a new recognition."
        )
        return ""

    def _act_on_one(self, request: HttpRequest, object_id: uuid.UUID, act: Any) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        record = self._get(object_id)
        if not self.has_change_permission(request, record):
            raise PermissionDenied
        act(request, AudioRecord.objects.filter(pk=object_id))
        return HttpResponseRedirect(_page_url(object_id))

    def file_of_one(self, request: HttpRequest, object_id: uuid.UUID, kind: str) -> FileResponse:
        """The original or the normalized file, as a download: what was sent in must not run in the admin's name."""
        record = self._get_for_reading(request, object_id)
        file = {"original": record.original_file, "normalized": record.normalized_file}.get(kind)
        if file is None:
            raise Http404
        return _download(file.location, f"{record.pk}-{kind}" + (f".{file.format}" if file.format.isalnum() else ""))

    def payload_of_one(self, request: HttpRequest, object_id: uuid.UUID, recognition_id: uuid.UUID) -> FileResponse:
        """The provider's raw answer."""
        record = self._get_for_reading(request, object_id)
        recognition = get_object_or_404(Recognition.objects.exclude(payload=""), pk=recognition_id, record=record)
        return _download(str(recognition.payload), f"{recognition.pk}.raw")

    def _get(self, object_id: uuid.UUID) -> AudioRecord:
        return get_object_or_404(AudioRecord, pk=object_id)

    def _get_for_reading(self, request: HttpRequest, object_id: uuid.UUID) -> AudioRecord:
        record = self._get(object_id)
        if not self.has_view_permission(request, record):
            raise PermissionDenied
        return record

    @admin.display(description="topics")
    def topic_names(self, record: AudioRecord) -> str:
        return ", ".join(record.topics.order_by("name").values_list("name", flat=True)) or "—"

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        record = kwargs.get("obj")
        if record is not None:
            context.update(page_of(record.pk, now=timezone.now()))
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: AudioRecord, form: Any, change: bool) -> None:
        # Not the whole row: its queue columns are as old as the page, and a worker may have written since.
        changes = {name: form.cleaned_data[name] for name in form.changed_data}
        edit.edit(AudioRecord.objects.filter(pk=obj.pk), now=timezone.now(), **changes)


def _page_url(record_id: uuid.UUID) -> str:
    return reverse("admin:records_audiorecord_change", args=[record_id])


def _download(location: str, name: str) -> FileResponse:
    try:
        file = default_storage.open(location)
    except FileNotFoundError:
        raise Http404 from None
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/octet-stream")
