"""Who somebody whom the provider has let through is here, and what they may do."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.utils import timezone

from transcriber.config import SignIn
from transcriber.signin.models import Identity

logger = logging.getLogger(__name__)

MEETINGS = 3
"""Tries to make a user or an identity that somebody else makes at the same moment."""


class Refused(Exception):
    """Somebody is known to the provider and may not come in. The code says why: `no_right`, `no_account`, `inactive`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def admit(claims: Mapping[str, Any]) -> User:
    """The user of verified claims, with the rights that these give as of now. Raises Refused.

    Whoever comes for the first time becomes a user of their own; nobody gets an account by its name, and by an e-mail address only where
    the configuration says so. Rights that are no longer claimed are taken away even from somebody who may not come in any more, because
    another browser of theirs may still be signed in.
    """
    config: SignIn = settings.TRANSCRIBER.signin
    theirs = groups_of(claims, config.groups_claim)
    is_welcome = not config.users or not theirs.isdisjoint({*config.users, *config.staff, *config.superusers})
    for last in (*[False] * (MEETINGS - 1), True):
        try:
            with transaction.atomic():
                user = _known(claims) or (_new(claims, config) if is_welcome else None)
                if user:
                    _set_rights(user, theirs, config)
            break
        except IntegrityError:
            if last:
                raise
    if not is_welcome:
        raise Refused("no_right")
    if user is None:
        raise Refused("no_account")
    if not user.is_active:
        raise Refused("inactive")
    return user


def groups_of(claims: Mapping[str, Any], name: str) -> set[str]:
    """The texts of a claim that is a text or a list of texts; of one inside others if none is called so as a whole."""
    found: Any = claims.get(name)
    if found is None:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return {found}
    return {value for value in found if isinstance(value, str)} if isinstance(found, list) else set()


def _known(claims: Mapping[str, Any]) -> User | None:
    identity = Identity.objects.select_related("user").filter(issuer=claims["iss"], subject=claims["sub"]).first()
    if identity is None:
        return None
    Identity.objects.filter(pk=identity.pk).update(updated=timezone.now())
    return identity.user


def _new(claims: Mapping[str, Any], config: SignIn) -> User | None:
    user = _same_address(claims) if config.link_by_email else None
    if user is None and config.create_users:
        user = User(
            username=_free_name(claims),
            email=_verified_address(claims)[:254],
            first_name=_text(claims, "given_name")[:150],
            last_name=_text(claims, "family_name")[:150],
        )
        user.set_unusable_password()
        user.save()
        logger.info("a user came from the provider for the first time")
    if user:
        Identity.objects.create(user=user, issuer=claims["iss"], subject=claims["sub"])
    return user


def _same_address(claims: Mapping[str, Any]) -> User | None:
    """The one user with that verified address. Not one who has an identity there already: addresses are given to new people, accounts must not be.
    Compared here, letter for letter but for the case of ASCII: what a database calls alike may be two addresses."""
    address = _verified_address(claims)
    if not address or not address.isascii():
        return None
    candidates = User.objects.filter(email__iexact=address).exclude(identities__issuer=claims["iss"])
    same = [user for user in candidates if user.email.isascii() and user.email.lower() == address.lower()]
    return same[0] if len(same) == 1 else None


def _verified_address(claims: Mapping[str, Any]) -> str:
    return _text(claims, "email") if claims.get("email_verified") in (True, "true") else ""


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value.replace("\0", "") if isinstance(value, str) else ""


def _free_name(claims: Mapping[str, Any]) -> str:
    """As they are called there, with a number where somebody here has that name."""
    wanted = _text(claims, "preferred_username") or _text(claims, "email").partition("@")[0]
    wanted = re.sub(r"[^\w.@+-]", "", User.normalize_username(wanted))[:140] or "user"
    name, number = wanted, 1
    while User.objects.filter(username__iexact=name).exists():
        number += 1
        name = f"{wanted}-{number}"
    return name


def _set_rights(user: User, theirs: set[str], config: SignIn) -> None:
    if config.staff or config.superusers:
        is_superuser = not theirs.isdisjoint(config.superusers)
        is_staff = is_superuser or not theirs.isdisjoint(config.staff)
        if (user.is_staff, user.is_superuser) != (is_staff, is_superuser):
            user.is_staff, user.is_superuser = is_staff, is_superuser
            user.save(update_fields=["is_staff", "is_superuser"])
    if config.groups:
        user.groups.remove(*Group.objects.filter(name__in=set(config.groups) - theirs, user=user))
        user.groups.add(*Group.objects.filter(name__in=set(config.groups) & theirs).exclude(user=user))
