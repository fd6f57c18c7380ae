from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from records.models.base import Row


class TextKind(models.TextChoices):
    TRANSCRIPT = "transcript"
    LITERARY = "literary"


class Text(Row):
    """A text of a record; read when one record is opened, so it is no column of the record."""

    kind = models.CharField(max_length=16, choices=TextKind)
    contents = models.TextField(blank=True)

    class Meta:
        db_table = "texts"
        verbose_name = _("text")
        verbose_name_plural = _("texts")
        constraints = [models.CheckConstraint(condition=models.Q(kind__in=TextKind.values), name="texts_kind_known")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
