"""A person's vocabulary of what they talk about."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    """A UUIDv7: in order of time, and not to be guessed by counting."""
    return uuid7()


class Topic(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(default=timezone.now, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="topics")
    name = models.CharField(max_length=100)

    class Meta:
        db_table = "topics"
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="topics_once_per_owner")]

    def __str__(self) -> str:
        return self.name
