"""Attempts to sign in that failed, so that a wait can be ended, and who is who at the provider."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from axes.models import AccessAttempt
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin

from transcriber.signin.attempts import FREE_PER_PAIR, pause
from transcriber.signin.forms import LoginForm
from transcriber.signin.models import Identity

admin.site.login_form = LoginForm


class _SeenAndRemoved(ModelAdmin):  # type: ignore[misc]  # unfold ships no types
    """Rows that nobody makes or changes by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(AccessAttempt)
class AccessAttemptAdmin(_SeenAndRemoved):
    """Deleting a row lets its name be tried from its address as if nothing had been."""

    list_display = ["username", "ip_address", "known", "failures_since_start", "attempt_time", "next_try"]
    list_display_links = None
    search_fields = ["username", "ip_address"]
    search_help_text = _("Name or address")
    ordering = ["-attempt_time"]
    fields = ["username", "ip_address", "failures_since_start", "attempt_time"]
    show_full_result_count = False

    @admin.display(description=_("known browser"), boolean=True)
    def known(self, attempt: AccessAttempt) -> bool:
        return bool(attempt.user_agent)

    @admin.display(description=_("next try from"))
    def next_try(self, attempt: AccessAttempt) -> datetime | str:
        at: datetime = attempt.attempt_time + pause(attempt.failures_since_start, FREE_PER_PAIR)
        return at if at > timezone.now() else gettext("at once")


@admin.register(Identity)
class IdentityAdmin(_SeenAndRemoved):
    """Deleting a row makes its person a newcomer at their next sign-in."""

    list_display = ["user", "issuer", "subject", "created", "updated"]
    list_display_links = None
    list_select_related = ["user"]
    search_fields = ["user__username", "subject"]
    search_help_text = _("User or id at the provider")
    ordering = ["-updated"]
    fields = ["user", "issuer", "subject", "created", "updated"]
    show_full_result_count = False
