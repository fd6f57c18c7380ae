from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from records.models.base import Row


class Structure(Row):
    """The transcript with times.

    `contents`: {"language": str | null, "speakers": [str], "utterances": [{"start_ms", "end_ms", "text", "channel", "speaker",
    "words": [{"start_ms", "end_ms", "text"}]}]}; written by `records.formats.to_json`, whose VERSION is `version`.
    """

    version = models.PositiveSmallIntegerField()
    contents = models.JSONField()
    language = models.CharField(max_length=35, blank=True, help_text="What was spoken, BCP-47; empty if nobody spoke or it is unknown.")

    class Meta:
        db_table = "structures"
        verbose_name = _("structure")
        verbose_name_plural = _("structures")

    def __str__(self) -> str:
        return f"structure {self.pk}"
