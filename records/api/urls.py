from django.urls import path, register_converter
from django.urls.converters import StringConverter

from records.api import views
from records.api.serializers import TRANSCRIPT_KINDS


class TranscriptKind(StringConverter):
    regex = "|".join(TRANSCRIPT_KINDS)


register_converter(TranscriptKind, "transcript_kind")

urlpatterns = [
    path("records/", views.Records.as_view(), name="records"),
    path("records/<uuid:pk>/", views.Record.as_view(), name="record"),
    path("records/<uuid:pk>/resume/", views.Resume.as_view(), name="record-resume"),
    path("records/<uuid:pk>/halt/", views.Halt.as_view(), name="record-halt"),
    path("records/<uuid:pk>/events/", views.Events.as_view(), name="record-events"),
    path("records/<uuid:pk>/transcript/", views.Transcript.as_view(), name="record-transcript"),
    path("records/<uuid:pk>/transcript.<transcript_kind:kind>", views.TranscriptAs.as_view(), name="record-transcript-as"),
    path("records/<uuid:pk>/audio/original/", views.OriginalAudio.as_view(), name="record-audio-original"),
    path("records/<uuid:pk>/audio/normalized/", views.NormalizedAudio.as_view(), name="record-audio-normalized"),
]
