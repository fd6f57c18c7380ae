"""Attempts at a provider: all that would stop being true on a change of provider."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    """A UUIDv7: in order of time, and not to be guessed by counting."""
    return uuid7()


def payload_name(recognition: Any, filename: str) -> str:
    return f"payloads/{str(recognition.pk)[-2:]}/{recognition.pk}.raw"


class Recognition(models.Model):
    """One attempt. Options are frozen when it is made, so that a repeat gives the same transcript."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(default=timezone.now, editable=False)
    record = models.ForeignKey("records.AudioRecord", on_delete=models.CASCADE, related_name="recognitions")
    provider = models.CharField(max_length=200, help_text="Name in the registry.")
    model = models.CharField(max_length=200, blank=True)
    options = models.JSONField(default=dict, blank=True)
    external_id = models.CharField(max_length=200, blank=True, help_text="The provider's handle of this attempt.")
    source_uri = models.CharField(max_length=1000, blank=True, help_text="Where the provider reads the audio.")
    submit_started_at = models.DateTimeField(null=True, blank=True, help_text="The mark set before a paid call.")
    payload = models.FileField(upload_to=payload_name, max_length=255, blank=True, help_text="The raw answer; megabytes, so no column.")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "recognitions"
        verbose_name = _("recognition")
        verbose_name_plural = _("recognitions")
        indexes = [
            models.Index(fields=["record", "id"], name="recognitions_of_record"),
            # Whose recognition is a provider's, newest first (admin).
            models.Index(fields=["provider", "record"], name="recognitions_of_provider"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "external_id"], condition=~models.Q(external_id=""), name="recognitions_external_id_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.pk}"


class ProviderGate(models.Model):
    """What all workers of all machines must know before they call a provider: one row for each provider and kind of call.

    The row of kind "" carries the pause of the provider as a whole.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(default=timezone.now, editable=False)
    provider = models.CharField(max_length=200)
    kind = models.CharField(max_length=32, blank=True)
    next_at = models.DateTimeField(null=True, blank=True, help_text="The next slot that nobody has taken.")
    booked_until = models.DateTimeField(null=True, blank=True, help_text="Up to here slots have been promised to records that wait.")
    paused_until = models.DateTimeField(null=True, blank=True, help_text="Until then nobody calls; then one tries.")
    pause_code = models.CharField(max_length=64, blank=True)
    pause_text = models.CharField(max_length=1000, blank=True)

    class Meta:
        db_table = "provider_gates"
        verbose_name = _("provider gate")
        verbose_name_plural = _("provider gates")
        constraints = [models.UniqueConstraint(fields=["provider", "kind"], name="provider_gates_once")]

    def __str__(self) -> str:
        return f"{self.provider} {self.kind}"


class ProviderRemoval(models.Model):
    """What is still to be removed at a provider; worked off by the housekeeping, so that a provider that is away loses us nothing."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(default=timezone.now, editable=False)
    provider = models.CharField(max_length=200)
    source_uri = models.CharField(max_length=1000, blank=True, help_text="The copy of the audio that was made for the provider.")
    external_id = models.CharField(max_length=200, blank=True, help_text="The operation whose result it keeps.")
    attempts = models.PositiveIntegerField(default=0)
    delay_time = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "provider_removals"
        verbose_name = _("removal at a provider")
        verbose_name_plural = _("removals at a provider")
        indexes = [models.Index(fields=["delay_time"], name="provider_removals_due")]

    def __str__(self) -> str:
        return f"{self.provider} {self.pk}"
