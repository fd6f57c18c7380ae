from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import flatten
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.files.storage import default_storage
from django.db.models import Count, QuerySet
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from recognition.models import Recognition
from records.admin import words
from records.admin.listing import FILTERS, CappedPaginator, RecordList, search
from records.admin.page import page_of
from records.models import AudioRecord
from records.operations import control, edit, removal
from records.pipeline.stages import STAGES
from records.states import Origin, State

SHOWN = (("owner", "id"), ("language", "notes"), "topic_names", ("created", "updated"))
QUEUE = (
    ("state", "state_entered_at"),
    ("work_started_at", "attempts"),
    ("halted_at", "halt_reason"),
    "error_code",
    "error_text",
    ("delay_time", "progress"),
    ("acquisition_id", "acquire_expires_at"),
)
"""The page's rows of what is shown and never edited."""


class RecordForm(forms.ModelForm):  # type: ignore[type-arg]  # no generic at run time
    class Meta:
        model = AudioRecord
        fields = ("title", "brief")
        widgets = {
            "title": forms.TextInput(attrs={"class": "vTextField"}),
            "brief": forms.Textarea(attrs={"class": "vLargeTextField", "rows": 3}),
        }


@admin.register(AudioRecord)
class AudioRecordAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # no generic at run time
    """Queue columns are shown here and changed through `records.operations.control` alone; rows that are history can't be changed at all."""

    class Media:
        css = {"all": ["records/admin.css"]}

    form = RecordForm
    list_display = ("name", "of_owner", "state_badge", "halt_badge", "age", "attempts", "next_try", "progress_bar", "created_at")
    list_display_links = ("name",)
    list_select_related = ("owner",)
    list_filter = FILTERS
    list_per_page = 50
    search_fields = ("title", "error_text")
    search_help_text = "The id, or a part of the title or of the error."
    sortable_by = ("age", "created_at")
    ordering = ("-id",)
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = ("halt", "resume", "restart")
    actions_selection_counter = True
    fieldsets = (
        (None, {"fields": RecordForm.Meta.fields}),
        ("Recording", {"fields": SHOWN}),
        ("Queue", {"classes": ("collapse",), "fields": QUEUE}),
    )
    readonly_fields = flatten((*SHOWN, *QUEUE))

    # ---- permissions ------------------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    # ---- the list ---------------------------------------------------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecordList]:
        return RecordList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AudioRecord], search_term: str
    ) -> tuple[QuerySet[AudioRecord], bool]:
        return search(queryset, search_term), False

    @admin.display(description="recording")
    def name(self, record: AudioRecord) -> str:
        return str(record)

    @admin.display(description="owner")
    def of_owner(self, record: AudioRecord) -> SafeString:
        return format_html('<a href="?owner={}">{}</a>', record.owner_id, record.owner.get_username())

    @admin.display(description="state")
    def state_badge(self, record: AudioRecord) -> SafeString:
        return format_html('<span class="badge state-{}">{}</span>', record.state, record.state)

    @admin.display(description="halt", empty_value="")
    def halt_badge(self, record: AudioRecord) -> SafeString | None:
        if not record.halted_at:
            return None
        return format_html(
            '<span class="badge halted" title="{}">{}</span> <span class="quiet">{}</span>',
            record.error_text,
            record.halt_reason,
            record.error_code,
        )

    @admin.display(description="age in state", ordering="-state_entered_at")
    def age(self, record: AudioRecord) -> str:
        return words.span(timezone.now() - record.state_entered_at)

    @admin.display(description="next try")
    def next_try(self, record: AudioRecord) -> str:
        return words.next_try(record, now=timezone.now())

    @admin.display(description="progress", empty_value="")
    def progress_bar(self, record: AudioRecord) -> SafeString | None:
        if not record.acquisition_id:  # nothing is under way
            return None
        percent = round(record.progress * 100)
        return format_html('<progress value="{}" max="100" aria-label="{} %"></progress>', percent, percent)

    @admin.display(description="created", ordering="id")
    def created_at(self, record: AudioRecord) -> str:
        return f"{timezone.localtime(record.created):%Y-%m-%d %H:%M}"

    # ---- the acts: each narrows, makes one call and reports ----------------------------------------------------------------------

    @admin.action(description="Halt", permissions=["change"])
    def halt(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> None:
        self._report(request, "Halted", control.halt(queryset, by=_by(request), now=timezone.now()))

    @admin.action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> None:
        self._report(request, "Resumed", control.resume(queryset, by=_by(request), now=timezone.now()))

    @admin.action(description="Restart from a state …", permissions=["change"])
    def restart(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> HttpResponse | None:
        """Ask from which state, then do it. What was chosen in the list travels along in the form."""
        chosen = [(name, value) for name in (ACTION_CHECKBOX_NAME, "action", "select_across") for value in request.POST.getlist(name)]
        return self._restart(request, queryset, carried=chosen, back=request.get_full_path())

    def _restart(
        self, request: HttpRequest, records: QuerySet[AudioRecord], *, carried: list[tuple[str, str]], back: str
    ) -> HttpResponse | None:
        """None once it is done."""
        asked = request.POST.get("state", "") if "confirmed" in request.POST else None
        if asked in {stage.state.value for stage in STAGES}:
            state = State(asked)
            self._report(request, f"Restarted from {state.value}:", control.restart(records, state, by=_by(request), now=timezone.now()))
            return None
        found = dict(records.order_by().values_list("state").annotate(Count("pk")))
        order = list(State)
        options = [
            {
                "state": stage.state.value,
                "step": stage.name,
                "moves": sum(found.get(state.value, 0) for state in order[order.index(stage.state) :]),
                "may_cost": STAGES.is_before(stage.state, State.SUBMITTED),
            }
            for stage in STAGES
        ]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": "Restart from a state",
            "total": words.count_of(sum(found.values())),
            "found": [(state.value, found[state.value]) for state in order if state.value in found],
            "options": options,
            "carried": carried,
            "back": back,
            "nothing_chosen": asked is not None,
        }
        return TemplateResponse(request, "admin/records/audiorecord/restart.html", context)

    def _report(self, request: HttpRequest, done: str, report: control.Report) -> None:
        self.message_user(request, words.outcome_of(done, report), messages.SUCCESS if report.changed else messages.WARNING)

    # ---- the page of one record --------------------------------------------------------------------------------------------------

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
            control.confirm_submission(record, external_id=external_id, by=_by(request), now=timezone.now())
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

    # ---- removal, of one record at a time ----------------------------------------------------------------------------------------

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[list[Any], dict[Any, int], set[Any], list[Any]]:
        # Record and recognition protect each other from Django's own deletion; what goes with a record is said in its place.
        count = {"records, each with its files, texts, recognitions and journal": len(objs)}
        return [str(record) for record in objs], count, set(), []

    def delete_model(self, request: HttpRequest, obj: AudioRecord) -> None:
        removal.remove(AudioRecord.objects.filter(pk=obj.pk))

    # ---- the admin's own log, without titles: they would outlive the record there ------------------------------------------------

    def log_change(self, request: HttpRequest, obj: AudioRecord, message: Any) -> LogEntry:
        return _log(request, obj, CHANGE, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> list[LogEntry]:
        return [_log(request, record, DELETION, "") for record in queryset]


def _log(request: HttpRequest, record: AudioRecord, act: int, message: Any) -> LogEntry:
    return LogEntry.objects.create(
        user=_person(request),
        content_type=ContentType.objects.get_for_model(AudioRecord),
        object_id=str(record.pk),
        object_repr=str(record.pk),
        action_flag=act,
        change_message=message if isinstance(message, str) else json.dumps(message),
    )


def _person(request: HttpRequest) -> User:
    assert request.user.is_authenticated  # the admin lets nobody else in
    return request.user


def _by(request: HttpRequest) -> control.By:
    return control.By(Origin.ADMIN, _person(request))


def _page_url(record_id: uuid.UUID) -> str:
    return reverse("admin:records_audiorecord_change", args=[record_id])


def _download(location: str, name: str) -> FileResponse:
    try:
        file = default_storage.open(location)
    except FileNotFoundError:
        raise Http404 from None
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/octet-stream")
