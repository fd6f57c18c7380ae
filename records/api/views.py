"""The calls of the API: each translates what was sent, makes one domain call, and translates the answer."""

from __future__ import annotations

import re
from typing import Any, ClassVar, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.http import HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import exceptions, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from records import queries
from records.api.errors import Refusal, conflict
from records.api.media import serve
from records.api.serializers import (
    TRANSCRIPT_KINDS,
    ChangesSerializer,
    ErrorSerializer,
    EventSerializer,
    FilterSerializer,
    RecordSerializer,
    StrictSerializer,
    TranscriptSerializer,
    UploadFieldsSerializer,
    UploadFormSerializer,
    WritingSerializer,
    seconds_to_wait,
)
from records.api.upload import receive
from records.models import AudioRecord, File, RecordEvent
from records.operations import control, edit, intake, removal
from records.operations.control import By, Report
from records.states import Origin
from records.storage.serving import TRANSCRIPT_TYPES, content_type_of, transcript_as

AWAY = OpenApiResponse(ErrorSerializer, "The storage or the database does not answer; try again after Retry-After.")
RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    int,
    OpenApiParameter.HEADER,
    response=[200, 202, 409, 503],
    description="Seconds after which to ask again, while unfinished.",
)


def shown(record: AudioRecord, request: Request, *, code: int = status.HTTP_200_OK) -> Response:
    """A record as an answer, with the time after which to ask again."""
    answer = Response(RecordSerializer(record, context={"request": request}).data, code)
    seconds = seconds_to_wait(record, timezone.now())
    if seconds is not None:
        answer["Retry-After"] = str(seconds)
    return answer


def asker(request: Request) -> User:
    """Whose request it is; everything here is for people who are known."""
    return cast(User, request.user)


def checked(serializer: type[StrictSerializer], data: Any) -> dict[str, Any]:
    """What was sent, checked. Raises ValidationError."""
    filled = serializer(data=data)
    filled.is_valid(raise_exception=True)
    return dict(filled.validated_data)


def query(request: Request, *others: str) -> dict[str, str]:
    """The parameters of the address, but for `others`. Raises ValidationError for one that comes twice: which one was meant, nobody knows."""
    if repeated := sorted(name for name, values in request.query_params.lists() if len(values) > 1 and name not in others):
        raise exceptions.ValidationError({name: [exceptions.ErrorDetail(_("Send this once."), "repeated")] for name in repeated})
    return {name: value for name, value in request.query_params.dict().items() if name not in others}


# ---- records ------------------------------------------------------------------------------------------------------------------------


class Records(GenericAPIView[AudioRecord]):
    serializer_class = RecordSerializer

    @extend_schema(
        operation_id="records_list",
        summary="Your records, newest first",
        parameters=[FilterSerializer],
        responses={200: RecordSerializer(many=True), 400: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        asked = checked(FilterSerializer, query(request, "cursor", "limit"))
        records = queries.filtered(queries.shown(asker(request)), **asked)
        return self.get_paginated_response(self.get_serializer(self.paginate_queryset(records), many=True).data)

    @extend_schema(
        operation_id="records_create",
        summary="Send a recording",
        description=(
            "As the field `file` of a form, or as the body itself with its name in a `Content-Disposition` header (its language, if you know it, "
            "in `Content-Language`). The answer comes once the recording is safely stored; ask for the record until it is `done` or halted."
        ),
        parameters=[
            OpenApiParameter(
                "Idempotency-Key",
                str,
                OpenApiParameter.HEADER,
                description="The same key with the same bytes gives the same record, however often it is sent.",
            ),
            OpenApiParameter("Location", OpenApiTypes.URI, OpenApiParameter.HEADER, response=[202], description="Address of the record."),
            RETRY_AFTER,
        ],
        request={"multipart/form-data": UploadFormSerializer, "application/octet-stream": OpenApiTypes.BINARY},
        responses={
            202: RecordSerializer,
            400: OpenApiResponse(ErrorSerializer, "Empty, cut off, damaged, or a field that can't be used."),
            408: OpenApiResponse(ErrorSerializer, "Nothing came for too long."),
            411: OpenApiResponse(ErrorSerializer, "No Content-Length."),
            413: OpenApiResponse(ErrorSerializer, "Larger than this service accepts."),
            422: OpenApiResponse(ErrorSerializer, "The Idempotency-Key was used for other bytes."),
            503: AWAY,
            507: OpenApiResponse(ErrorSerializer, "No space left."),
        },
    )
    def post(self, request: Request) -> Response:
        key = idempotency_key(request)
        with receive(request) as upload:
            fields = checked(UploadFieldsSerializer, upload.fields)
            taken = intake.take_in(upload.arrival, owner=asker(request), name=upload.name, key=key, now=timezone.now(), **fields)
        answer = shown(queries.get_shown(asker(request), taken.record.pk), request, code=status.HTTP_202_ACCEPTED)
        answer["Location"] = answer.data["links"]["self"]
        return answer


def idempotency_key(request: Request) -> str:
    key: str = request.headers.get("Idempotency-Key", "")
    if key and not re.fullmatch(r"[!-~]([ -~]{0,253}[!-~])?", key):
        raise Refusal(status.HTTP_400_BAD_REQUEST, "bad_idempotency_key", _("An Idempotency-Key is 1 to 255 printable ASCII characters."))
    return key


class Record(APIView):
    @extend_schema(operation_id="records_retrieve", summary="A record as it stands", parameters=[RETRY_AFTER], responses=RecordSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        return shown(queries.get_shown(asker(request), pk), request)

    @extend_schema(
        operation_id="records_update", summary="Change title or brief", request=ChangesSerializer, responses={200: RecordSerializer}
    )
    def patch(self, request: Request, pk: UUID) -> Response:
        changes = checked(ChangesSerializer, request.data)
        edit.edit(queries.own(asker(request)).filter(pk=pk), now=timezone.now(), **changes)
        return shown(queries.get_shown(asker(request), pk), request)

    @extend_schema(operation_id="records_destroy", summary="Remove a record with everything that is its own", responses={204: None})
    def delete(self, request: Request, pk: UUID) -> Response:
        if not removal.remove(queries.own(asker(request)).filter(pk=pk)):
            raise exceptions.NotFound
        return Response(status=status.HTTP_204_NO_CONTENT)


class Resume(APIView):
    @extend_schema(
        operation_id="records_resume",
        summary="Let a halted record go on from where it stood",
        request=None,
        responses={200: RecordSerializer, 409: OpenApiResponse(ErrorSerializer, "Codes: not_halted, unconfirmed.")},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        report = control.resume(queries.own(asker(request)).filter(pk=pk), by=By(Origin.API, asker(request)), now=timezone.now())
        return acted(report, request, pk)


class Halt(APIView):
    @extend_schema(
        operation_id="records_halt",
        summary="Make a record stand still",
        request=None,
        responses={200: RecordSerializer, 409: OpenApiResponse(ErrorSerializer, "Codes: done, halted_already.")},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        report = control.halt(queries.own(asker(request)).filter(pk=pk), by=By(Origin.API, asker(request)), now=timezone.now())
        return acted(report, request, pk)


PASSED_OVER = {
    "not_halted": gettext_lazy("This record is not halted."),
    "unconfirmed": gettext_lazy("Nobody knows whether the paid submission was accepted; an operator has to find out first."),
    "done": gettext_lazy("This record is done."),
    "halted_already": gettext_lazy("This record is halted already."),
}


def acted(report: Report, request: Request, pk: UUID) -> Response:
    """The answer to an act on one record."""
    for reason in report.passed_over:
        raise conflict(reason, str(PASSED_OVER[reason]))
    if not report.changed:
        raise exceptions.NotFound
    return shown(queries.get_shown(asker(request), pk), request)


# ---- what belongs to a record -------------------------------------------------------------------------------------------------------


class Events(GenericAPIView[RecordEvent]):
    serializer_class = EventSerializer
    ordering = "id"

    @extend_schema(operation_id="records_events", summary="The journal, oldest first", responses=EventSerializer(many=True))
    def get(self, request: Request, pk: UUID) -> Response:
        events = queries.journal(asker(request), pk)
        return self.get_paginated_response(self.get_serializer(self.paginate_queryset(events), many=True).data)


TRANSCRIPT_ANSWERS: dict[Any, Any] = {
    (200, "application/json"): TranscriptSerializer,
    **{(200, TRANSCRIPT_TYPES[kind]): OpenApiTypes.STR for kind in TRANSCRIPT_KINDS if kind != "json"},
    400: OpenApiResponse(ErrorSerializer, "A parameter that there is not, or a value that it can't have: invalid, min_value, max_value, …"),
    409: OpenApiResponse(ErrorSerializer, "Codes: not_ready (ask again after Retry-After), halted."),
}


def transcript(request: Request, pk: UUID, kind: str) -> HttpResponseBase:
    writing = checked(WritingSerializer, query(request))
    record = queries.get_with_structure(asker(request), pk)
    if record.structure_id is None:
        seconds = seconds_to_wait(record, timezone.now())
        if seconds is None:
            raise conflict("halted", _("There is no transcript: the record is halted."))
        raise conflict("not_ready", _("The transcript is not there yet."), headers={"Retry-After": str(seconds)})
    written = transcript_as(record, kind, WritingSerializer.writing(writing))
    assert written is not None
    assert record.structure is not None
    spoken = record.structure.language  # empty: none is told (transcriber.viewing)
    return HttpResponse(written, content_type=content_type_of(kind), headers={"Content-Language": spoken})


class Transcript(APIView):
    @extend_schema(
        operation_id="records_transcript",
        summary="The transcript, in the form that the Accept header prefers (JSON by default)",
        parameters=[WritingSerializer],
        responses={**TRANSCRIPT_ANSWERS, 406: OpenApiResponse(ErrorSerializer, "None of the forms is accepted.")},
    )
    def get(self, request: Request, pk: UUID) -> HttpResponseBase:
        preferred = request._request.get_preferred_type(list(TRANSCRIPT_TYPES.values()))
        if preferred is None:
            raise exceptions.NotAcceptable
        answer = transcript(request, pk, next(kind for kind, media_type in TRANSCRIPT_TYPES.items() if media_type == preferred))
        answer["Vary"] = "Accept"
        return answer


class TranscriptAs(APIView):
    @extend_schema(
        operation_id="records_transcript_as",
        summary="The transcript as JSON, text (one utterance a line) or subtitles",
        parameters=[WritingSerializer, OpenApiParameter("kind", str, OpenApiParameter.PATH, enum=TRANSCRIPT_KINDS)],
        responses=TRANSCRIPT_ANSWERS,
    )
    def get(self, request: Request, pk: UUID, kind: str) -> HttpResponseBase:
        return transcript(request, pk, kind)


AUDIO_ANSWERS: dict[Any, Any] = {
    (200, "audio/*"): OpenApiTypes.BINARY,
    (200, "application/octet-stream"): OpenApiTypes.BINARY,  # what is no sound, or none that is known
    (206, "audio/*"): OpenApiTypes.BINARY,
    (206, "application/octet-stream"): OpenApiTypes.BINARY,
    404: ErrorSerializer,
    416: OpenApiResponse(ErrorSerializer, "The file has no such range."),
    503: AWAY,
}
RANGE = OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="One range of bytes.")


class OriginalAudio(APIView):
    which: ClassVar[str] = "original_file"

    @extend_schema(operation_id="records_original", summary="The recording as it was sent", parameters=[RANGE], responses=AUDIO_ANSWERS)
    def get(self, request: Request, pk: UUID) -> HttpResponseBase:
        record = queries.get_with_files(asker(request), pk)
        file: File | None = getattr(record, self.which)
        if file is None:
            raise conflict("not_ready", _("The normalized copy is not there yet."))
        return serve(request._request, file, title=record.title)


class NormalizedAudio(OriginalAudio):
    which = "normalized_file"

    @extend_schema(
        operation_id="records_normalized",
        summary="The copy that providers read: Ogg/Opus",
        parameters=[RANGE],
        responses={**AUDIO_ANSWERS, 409: OpenApiResponse(ErrorSerializer, "Code: not_ready.")},
    )
    def get(self, request: Request, pk: UUID) -> HttpResponseBase:
        return super().get(request, pk)
