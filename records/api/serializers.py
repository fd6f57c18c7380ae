"""What goes out, and what may come in: one serializer for reading a record and one for each way of writing."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from records.cues import Measures
from records.formats import Writing
from records.models import AudioRecord, File, RecordEvent
from records.operations.intake import TITLE_LENGTH
from records.sentences import translated
from records.states import FINAL, EventOutcome, HaltReason, Origin, State

# ---- out ----------------------------------------------------------------------------------------------------------------------------

REASONS = {
    HaltReason.REJECTED: gettext_lazy("This recording can't be transcribed."),
    HaltReason.EXHAUSTED: gettext_lazy("It was tried several times in vain."),
    HaltReason.STUCK: gettext_lazy("It took too long."),
    HaltReason.UNCONFIRMED: gettext_lazy("Nobody knows whether the provider accepted it."),
    HaltReason.STOPPED: gettext_lazy("A person halted it; resume it to go on."),
}
"""What is said of a halt that has no text of its own."""

TRANSCRIPT_KINDS = ("json", "txt", "srt", "vtt")


class Moment(serializers.DateTimeField):
    """UTC in both directions, whatever the clock of the service or of a viewer says."""

    default_error_messages = {"invalid": gettext_lazy("This is no moment in the form of ISO 8601, such as 2026-05-17T12:30:00Z.")}

    def __init__(self, **more: Any) -> None:
        super().__init__(default_timezone=UTC, **more)


class TroubleSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="For programs.")
    message = serializers.CharField(help_text="One sentence for people.")


class FileSerializer(serializers.Serializer[File]):
    url = serializers.URLField(help_text="Takes Range requests.")
    size = serializers.IntegerField(help_text="Bytes.")
    format = serializers.CharField(allow_null=True, help_text="Found in the bytes; null until the recording was looked into.")
    duration_ms = serializers.IntegerField(allow_null=True)


class FilesSerializer(serializers.Serializer[Any]):
    original = FileSerializer()
    normalized = FileSerializer(allow_null=True)


class TranscriptLinksSerializer(serializers.Serializer[Any]):
    json = serializers.URLField()
    txt = serializers.URLField()
    srt = serializers.URLField()
    vtt = serializers.URLField()


class LinksSerializer(serializers.Serializer[Any]):
    self = serializers.URLField()
    events = serializers.URLField()
    transcript = TranscriptLinksSerializer(allow_null=True, help_text="Null until the transcript is there.")


class RecordSerializer(serializers.Serializer[AudioRecord]):
    """A record as it stands."""

    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=State.choices, source="state", help_text="What has been reached.")
    status_entered_at = Moment(source="state_entered_at")
    progress = serializers.FloatField(min_value=0, max_value=1, help_text="Of the step that leads on from this status; 1 when all is done.")
    halted = serializers.SerializerMethodField(help_text="Stands still until somebody resumes it.")
    halt_reason = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField(help_text="Why it is halted.")
    waiting_for = serializers.SerializerMethodField(help_text="Why it does not get on just now, though it will by itself.")
    title = serializers.CharField()
    brief = serializers.CharField()
    language = serializers.SerializerMethodField(help_text="Asked for; null: detect.")
    detected_language = serializers.SerializerMethodField(help_text="What was spoken; null until it is known, and if nobody spoke.")
    topics = serializers.SerializerMethodField()
    notes = serializers.ListField(
        child=serializers.CharField(), help_text="Codes of what was done to the recording, such as truncated or track_2."
    )
    duration_ms = serializers.SerializerMethodField()
    files = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()
    created = Moment()

    def get_halted(self, record: AudioRecord) -> bool:
        return record.halted_at is not None

    @extend_schema_field(serializers.ChoiceField(choices=HaltReason.choices, allow_null=True))
    def get_halt_reason(self, record: AudioRecord) -> str | None:
        return record.halt_reason or None

    @extend_schema_field(TroubleSerializer(allow_null=True))
    def get_error(self, record: AudioRecord) -> dict[str, str] | None:
        if record.halted_at is None:
            return None
        reason = HaltReason(record.halt_reason)
        return {"code": record.error_code or reason.value, "message": translated(record.error_text) or str(REASONS[reason])}

    @extend_schema_field(TroubleSerializer(allow_null=True))
    def get_waiting_for(self, record: AudioRecord) -> dict[str, str] | None:
        if record.halted_at is not None or not record.error_code:
            return None
        return {"code": record.error_code, "message": translated(record.error_text)}

    def get_language(self, record: AudioRecord) -> str | None:
        return record.language or None

    def get_detected_language(self, record: AudioRecord) -> str | None:
        return (record.structure.language or None) if record.structure else None

    def get_topics(self, record: AudioRecord) -> list[str]:
        return sorted(topic.name for topic in record.topics.all())

    def get_duration_ms(self, record: AudioRecord) -> int | None:
        return record.original_file.duration_ms

    @extend_schema_field(FilesSerializer)
    def get_files(self, record: AudioRecord) -> dict[str, Any]:
        return {"original": self._file(record, "original"), "normalized": self._file(record, "normalized")}

    @extend_schema_field(LinksSerializer)
    def get_links(self, record: AudioRecord) -> dict[str, Any]:
        return {
            "self": self._url("record", record),
            "events": self._url("record-events", record),
            "transcript": {kind: self._url("record-transcript-as", record, kind) for kind in TRANSCRIPT_KINDS}
            if record.structure_id
            else None,
        }

    def _file(self, record: AudioRecord, which: str) -> dict[str, Any] | None:
        file: File | None = getattr(record, f"{which}_file")
        if file is None:
            return None
        url = self._url(f"record-audio-{which}", record)
        return {"url": url, "size": file.size, "format": file.format or None, "duration_ms": file.duration_ms}

    def _url(self, name: str, record: AudioRecord, *more: str) -> str:
        return reverse(name, args=[record.pk, *more], request=self.context["request"])


def seconds_to_wait(record: AudioRecord, now: datetime) -> int | None:
    """When it is worth asking again: the rarer, the longer it has stood there. None: asking again won't help."""
    if record.state == FINAL or record.halted_at is not None:
        return None
    pause = (record.delay_time - now).total_seconds() if record.acquisition_id is None else 0
    return math.ceil(min(30, max(1, pause, record.age_in_state(now) / 20)))


class EventSerializer(serializers.Serializer[RecordEvent]):
    """A row of the journal."""

    id = serializers.UUIDField()
    created = Moment()
    origin = serializers.ChoiceField(choices=Origin.choices)
    actor = serializers.SerializerMethodField(help_text="Who did it, where it was a person.")
    step = serializers.CharField()
    outcome = serializers.ChoiceField(choices=EventOutcome.choices)
    duration_ms = serializers.IntegerField(allow_null=True, help_text="How long the step ran.")
    outcome_text = serializers.SerializerMethodField()

    def get_outcome_text(self, event: RecordEvent) -> str:
        return translated(event.outcome_text)

    def get_actor(self, event: RecordEvent) -> str | None:
        return event.actor.get_username() if event.actor else None


# ---- in -----------------------------------------------------------------------------------------------------------------------------


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know, instead of passing over what somebody meant."""

    default_error_messages = {"invalid": gettext_lazy("Send the fields as a JSON object.")}

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and (unknown := sorted(set(data) - set(self.fields))):
            raise serializers.ValidationError(
                {name: [serializers.ErrorDetail(_("There is no such field."), "unknown_field")] for name in unknown}
            )
        return super().to_internal_value(data)


class Written(serializers.CharField):
    """Text alone: a number is refused where REST framework would write it down."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class UploadFieldsSerializer(StrictSerializer):
    title = Written(
        max_length=TITLE_LENGTH, required=False, allow_blank=True, help_text="By default the sent file's name without its extension."
    )
    language = Written(required=False, allow_blank=True, help_text="Spoken in the recording, as a BCP-47 tag; empty: detect.")


class UploadFormSerializer(UploadFieldsSerializer):
    """For the schema: the form as a whole. The file itself never comes by a serializer."""

    file = serializers.FileField()


class ChangesSerializer(StrictSerializer):
    title = Written(max_length=TITLE_LENGTH, required=False, allow_blank=True)
    brief = Written(max_length=1000, required=False, allow_blank=True)


class FilterSerializer(StrictSerializer):
    status = serializers.ChoiceField(choices=State.choices, required=False)
    halted = serializers.BooleanField(required=False, help_text="true: those that stand still; false: all others.")
    created_after = Moment(required=False)
    created_before = Moment(required=False)
    search = Written(required=False, allow_blank=True, max_length=TITLE_LENGTH, help_text="Part of the title, in any case.")


class WritingSerializer(StrictSerializer):
    """How txt, srt and vtt are written; JSON is the same whatever they say."""

    max_line_length = serializers.IntegerField(
        min_value=8, max_value=200, required=False, help_text="Characters in a line of a subtitle: 42, or 16 for scripts of full width."
    )
    max_lines = serializers.IntegerField(min_value=1, max_value=4, required=False, help_text="Lines of a subtitle: 2.")
    max_duration = serializers.FloatField(
        min_value=1, max_value=60, required=False, help_text="Seconds for which a subtitle stands at most: 7."
    )
    speakers = serializers.BooleanField(required=False, help_text="Say who speaks, where there are several: true.")
    words = serializers.BooleanField(required=False, help_text="In vtt, when each word begins: false.")

    @staticmethod
    def writing(asked: dict[str, Any]) -> Writing:
        measures: dict[str, Any] = {name: asked[name] for name in ("max_line_length", "max_lines") if name in asked}
        if "max_duration" in asked:
            measures["max_duration_ms"] = round(asked["max_duration"] * 1000)
        return Writing(Measures(**measures), **{name: asked[name] for name in ("speakers", "words") if name in asked})


# ---- the schema's alone -------------------------------------------------------------------------------------------------------------


class ErrorItemSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="For programs.")
    detail = serializers.CharField(help_text="For people.")
    attr = serializers.CharField(allow_null=True, help_text="The field it is about, if it is about one.")


class ErrorSerializer(serializers.Serializer[Any]):
    """The shape of every error."""

    type = serializers.ChoiceField(choices=["client_error", "server_error", "validation_error"])
    errors = ErrorItemSerializer(many=True)  # type: ignore[assignment]  # takes the place of what the schema never asks for


class WordSerializer(serializers.Serializer[Any]):
    start_ms = serializers.IntegerField()
    end_ms = serializers.IntegerField()
    text = serializers.CharField()


class UtteranceSerializer(serializers.Serializer[Any]):
    start_ms = serializers.IntegerField(help_text="From the start of the original.")
    end_ms = serializers.IntegerField()
    text = serializers.CharField()
    channel = serializers.IntegerField(allow_null=True)
    speaker = serializers.CharField(allow_null=True)
    words = WordSerializer(many=True)


class TranscriptSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField(help_text="Of this shape.")
    language = serializers.CharField(allow_null=True)
    speakers = serializers.ListField(child=serializers.CharField())
    utterances = UtteranceSerializer(many=True)
