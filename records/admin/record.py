"""The admin of records, put together: list, acts, page, and removal."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import flatten
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from records.admin.acts import person
from records.admin.listing import RecordListing
from records.admin.pages import RecordPages
from records.models import AudioRecord
from records.operations import removal

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
class AudioRecordAdmin(RecordListing, RecordPages, ModelAdmin):  # type: ignore[misc]  # unfold ships no types
    """Queue columns are shown here and changed through `records.operations.control` alone; rows that are history can't be changed at all."""

    form = RecordForm
    fieldsets = (
        (None, {"fields": RecordForm.Meta.fields}),
        ("Recording", {"fields": SHOWN}),
        ("Queue", {"classes": ("collapse",), "fields": QUEUE}),
    )
    readonly_fields = flatten((*SHOWN, *QUEUE))

    # ---- permissions ------------------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

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
        user=person(request),
        content_type=ContentType.objects.get_for_model(AudioRecord),
        object_id=str(record.pk),
        object_repr=str(record.pk),
        action_flag=act,
        change_message=message if isinstance(message, str) else json.dumps(message),
    )
