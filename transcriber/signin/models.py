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


class Identity(models.Model):
    """Who a user is to an OpenID Connect provider. The pair of issuer and subject never changes and is never given to somebody else; names and
    addresses may."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created = models.DateTimeField(_("first sign-in"), default=timezone.now, editable=False)
    updated = models.DateTimeField(_("last sign-in"), default=timezone.now, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities", verbose_name=_("user"))
    issuer = models.CharField(_("provider"), max_length=255)
    subject = models.CharField(_("id there"), max_length=255)

    class Meta:
        db_table = "identities"
        verbose_name = _("identity at a provider")
        verbose_name_plural = _("identities at a provider")
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identities_once")]

    def __str__(self) -> str:
        return self.issuer
