from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SignInConfig(AppConfig):
    name = "transcriber.signin"
    label = "signin"
    verbose_name = _("Sign-in")
    default_auto_field = "django.db.models.BigAutoField"
