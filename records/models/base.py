from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    """A UUIDv7: in order of time, and not to be guessed by counting."""
    return uuid7()


class Row(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True
