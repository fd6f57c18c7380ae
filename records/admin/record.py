"""The admin of records, put together: list, acts, page, and removal."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from records.admin.acts import person
from records.admin.listing import RecordListing
from records.admin.pages import RecordPages
from records.models import AudioRecord
from records.operations import removal
from records.pipeline.stages import STAGES
from records.states import State


class RecordForm(forms.ModelForm):  # type: ignore[type-arg]  # no generic at run time
    """Title and brief; and the state, which is a question: another one than the page showed leads to the restart, and nothing is written."""

    state = forms.ChoiceField(
        label=_("State"),
        choices=State.choices,
        required=False,
        show_hidden_initial=True,  # the state may have moved on since: what counts is whether the person changed it
        widget=UnfoldAdminSelectWidget,
        help_text=_("To choose an earlier state is to restart from it. You are told what that means, and asked, before anything happens."),
    )

    class Meta:
        model = AudioRecord
        fields = ("title", "brief")
        widgets = {"title": UnfoldAdminTextInputWidget, "brief": UnfoldAdminTextareaWidget(attrs={"rows": 3})}

    def clean_state(self) -> str:
        reached = self.instance.state
        chosen = str(self.cleaned_data["state"])
        if not chosen or "state" not in self.changed_data:
            return str(reached)
        if STAGES.is_before(reached, chosen):
            raise forms.ValidationError(
                gettext(
                    "The recording stands at “%(reached)s” and has not come to “%(chosen)s” yet: its steps can be done again, not skipped. "
                    "Choose a state that it has reached."
                )
                % {"reached": State(reached).label, "chosen": State(chosen).label}
            )
        return chosen


@admin.register(AudioRecord)
class AudioRecordAdmin(RecordListing, RecordPages, ModelAdmin):  # type: ignore[misc]  # unfold ships no types
    """Queue columns are shown here and changed through `records.operations.control` alone; rows that are history can't be changed at all."""

    form = RecordForm
    compressed_fields = False
    fieldsets = ((None, {"fields": (*RecordForm.Meta.fields, "state")}),)

    # ---- permissions ------------------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    # ---- removal, of one record at a time ----------------------------------------------------------------------------------------

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[list[Any], dict[str, int], set[Any], list[Any]]:
        # Record and recognition protect each other from Django's own deletion; what goes with a record is said in its place.
        [record] = objs
        files = [file for file in (record.original_file, record.normalized_file) if file]
        attempts = list(record.recognitions.values_list("payload", "source_uri"))
        counts = {
            gettext("files"): len(files),
            gettext("texts"): sum(link is not None for link in (record.transcript_text_id, record.literary_text_id)),
            gettext("recognitions"): len(attempts),
            gettext("saved answers of providers"): sum(bool(payload) for payload, _uri in attempts),
            gettext("rows of the journal"): record.events.count(),
        }
        told = []
        if any(uri and uri not in [file.location for file in files] for _payload, uri in attempts):
            told.append(
                gettext("The copy in the provider's bucket, and what the provider keeps of it, go as soon as the provider can be reached.")
            )
        if record.acquisition_id:
            told.append(gettext("A worker is at it now: what it is doing is lost."))
        return [str(record), told], counts, set(), []

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
