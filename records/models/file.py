from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from records.models.base import Row


class File(Row):
    """One of the two files of a record: the original as it was received, or the normalized copy. The bytes lie in the default storage."""

    location = models.CharField(max_length=255, unique=True, help_text="Name in the storage; ours, never the sender's.")
    size = models.BigIntegerField(help_text="Bytes.")
    format = models.CharField(max_length=32, blank=True, help_text="Short name of the container, as ffmpeg calls it; empty until known.")
    channels = models.PositiveSmallIntegerField(default=1)
    duration_ms = models.BigIntegerField(null=True, blank=True)

    class Meta:
        db_table = "files"
        verbose_name = _("file")
        verbose_name_plural = _("files")
        constraints = [
            models.CheckConstraint(condition=models.Q(size__gte=0), name="files_size_not_negative"),
            models.CheckConstraint(
                condition=models.Q(duration_ms__isnull=True) | models.Q(duration_ms__gte=0), name="files_duration_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"file {self.pk}"
