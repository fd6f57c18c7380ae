from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from records.models.base import Row
from records.models.file import File
from records.models.structure import Structure
from records.models.text import Text
from records.states import FINAL, HaltReason, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class AudioRecordQuerySet(models.QuerySet["AudioRecord"]):
    def of(self, owner: User) -> AudioRecordQuerySet:
        """The records a person may see through the API."""
        return self.filter(owner=owner)

    def unfinished(self) -> AudioRecordQuerySet:
        return self.exclude(state=FINAL)


class AudioRecord(Row):
    """A recording somebody sent, and its place in the queue.

    The queue columns (`state` … `progress`) are written by `records.pipeline` and `records.operations` alone.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.PROTECT, related_name="audio_records")
    title = models.CharField(_("title"), max_length=255, blank=True)
    brief = models.CharField(_("brief"), max_length=1000, blank=True)
    language = models.CharField(_("language"), max_length=35, blank=True, help_text="Asked for, as a BCP-47 tag; empty: detect.")
    notes = models.JSONField(_("notes"), default=list, blank=True, help_text="Codes of what was done to the recording.")

    state = models.CharField(_("state"), max_length=16, choices=State, default=State.UPLOADED)
    state_entered_at = models.DateTimeField(_("in this state since"), default=timezone.now)
    work_started_at = models.DateTimeField(
        _("work started"), null=True, blank=True, help_text="First acquisition in this state: the time limit counts from here."
    )
    halted_at = models.DateTimeField(_("halted at"), null=True, blank=True)
    halt_reason = models.CharField(_("halt reason"), max_length=16, choices=HaltReason, blank=True)
    error_code = models.CharField(
        _("error code"), max_length=64, blank=True, help_text="Of the halt, of the last failure, or of what is waited for."
    )
    error_text = models.CharField(_("error"), max_length=1000, blank=True)
    acquisition_id = models.UUIDField(
        _("acquisition"), null=True, blank=True, help_text="Proof of holding the record; fresh at each acquisition."
    )
    acquire_expires_at = models.DateTimeField(_("lease ends"), null=True, blank=True)
    delay_time = models.DateTimeField(
        _("due at"), default=timezone.now, help_text="Due from here on. While the record is held: the end of the lease."
    )
    attempts = models.PositiveIntegerField(_("failed attempts"), default=0, help_text="Failures in this state.")
    progress = models.FloatField(_("progress"), default=0, help_text="0 to 1 of the step at work.")

    original_file = models.OneToOneField(File, verbose_name=_("original"), on_delete=models.PROTECT, related_name="original_of")
    normalized_file = models.OneToOneField(
        File, verbose_name=_("normalized copy"), on_delete=models.PROTECT, null=True, blank=True, related_name="normalized_of"
    )
    structure = models.OneToOneField(
        Structure, verbose_name=_("structure"), on_delete=models.PROTECT, null=True, blank=True, related_name="record"
    )
    transcript_text = models.OneToOneField(
        Text, verbose_name=_("transcript"), on_delete=models.PROTECT, null=True, blank=True, related_name="transcript_of"
    )
    literary_text = models.OneToOneField(
        Text, verbose_name=_("literary text"), on_delete=models.PROTECT, null=True, blank=True, related_name="literary_of"
    )
    recognition = models.ForeignKey(
        "recognition.Recognition", verbose_name=_("recognition"), on_delete=models.RESTRICT, null=True, blank=True, related_name="+"
    )
    topics = models.ManyToManyField(
        "topics.Topic", verbose_name=_("topics"), blank=True, related_name="records", db_table="audio_record_topics"
    )

    objects = AudioRecordQuerySet.as_manager()

    class Meta:
        db_table = "audio_records"
        verbose_name = _("audio record")
        verbose_name_plural = _("audio records")
        indexes = [
            # Acquiring, and "is anything ready" (records.pipeline.acquire). The predicate stands there word for word.
            models.Index(fields=["delay_time", "id"], name="audio_records_due", condition=~Q(state=FINAL) & Q(halted_at__isnull=True)),
            # A person's own list, newest first (API).
            models.Index(fields=["owner", "-id"], name="audio_records_of_owner"),
            # What stands, and why (admin).
            models.Index(fields=["halt_reason", "state"], name="audio_records_halted", condition=Q(halted_at__isnull=False)),
            # What is under way, by state and age (admin).
            models.Index(fields=["state", "state_entered_at"], name="audio_records_unfinished", condition=~Q(state=FINAL)),
            # How many stand for each reason or none, and which entered its state first (records.overview).
            models.Index(fields=["state", "halt_reason", "state_entered_at"], name="audio_records_standing", condition=~Q(state=FINAL)),
            # Which has been worked on longest, as its limit counts (records.overview).
            models.Index(
                fields=["state", "work_started_at"],
                name="audio_records_working",
                condition=Q(work_started_at__isnull=False, halted_at__isnull=True),
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=State.values), name="audio_records_state_known"),
            models.CheckConstraint(
                condition=Q(halted_at__isnull=True, halt_reason="") | Q(halted_at__isnull=False, halt_reason__in=HaltReason.values),
                name="audio_records_halted_has_reason",
            ),
            models.CheckConstraint(
                condition=Q(acquisition_id__isnull=True, acquire_expires_at__isnull=True)
                | Q(acquisition_id__isnull=False, acquire_expires_at__isnull=False),
                name="audio_records_acquired_expires",
            ),
            # Who halts takes the record away from whoever holds it, and nobody holds what is finished.
            models.CheckConstraint(
                condition=Q(acquisition_id__isnull=True) | (Q(halted_at__isnull=True) & ~Q(state=FINAL)),
                name="audio_records_held_is_at_work",
            ),
            models.CheckConstraint(condition=~Q(state=FINAL) | Q(halted_at__isnull=True), name="audio_records_done_not_halted"),
            models.CheckConstraint(condition=Q(progress__gte=0, progress__lte=1), name="audio_records_progress_fraction"),
            models.CheckConstraint(condition=Q(attempts__gte=0), name="audio_records_attempts_not_negative"),
            models.CheckConstraint(
                condition=Q(normalized_file__isnull=True) | ~Q(original_file=F("normalized_file")), name="audio_records_two_different_files"
            ),
        ]

    def __str__(self) -> str:
        return self.title or str(self.pk)

    @property
    def folder(self) -> str:
        """Where its files lie in the storage. The tail of the id spreads them; its head is the time."""
        return f"records/{self.pk.hex[-2:]}/{self.pk}"

    def age_in_state(self, now: datetime) -> float:
        """Seconds since the state was entered."""
        return (now - self.state_entered_at).total_seconds()
