from __future__ import annotations

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.utils.translation import gettext_lazy as _


class SignInConfig(AppConfig):
    name = "transcriber.signin"
    label = "signin"
    verbose_name = _("Sign-in")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from transcriber.signin import leftovers

        user_logged_in.connect(leftovers.keep, dispatch_uid="transcriber.signin.keep")
