from __future__ import annotations

from django import template
from django.conf import settings

from transcriber.signin.provider import is_configured

register = template.Library()


@register.simple_tag
def provider_name() -> str:
    """What the provider is called on the button; empty where there is none."""
    return str(settings.TRANSCRIBER.signin.provider_name) if is_configured() else ""
