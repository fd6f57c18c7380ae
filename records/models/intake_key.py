from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from records.models.audio_record import AudioRecord
from records.models.base import Row


class IntakeKey(Row):
    """An `Idempotency-Key` a sender used: the same key gives the same record. Kept apart because only the intake reads it."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the bytes received with it; another recording under the key is refused.")
    record = models.ForeignKey(AudioRecord, on_delete=models.CASCADE, related_name="+")

    class Meta:
        db_table = "intake_keys"
        verbose_name = _("intake key")
        verbose_name_plural = _("intake keys")
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="intake_keys_one_per_owner")]

    def __str__(self) -> str:
        return str(self.pk)
