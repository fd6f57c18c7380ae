"""The look of the operator's console: what django-unfold is told. Read by the settings, so it knows nothing of models."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

UNFINISHED, HALTED = "state=unfinished", "halted=yes"
RECORDS = reverse_lazy("admin:records_audiorecord_changelist")


def _style(path: str) -> Any:
    return lambda request: static(path)


def _may(permission: str) -> Any:
    def allowed(request: HttpRequest) -> bool:
        return request.user.has_perm(permission)

    return allowed


def _link(title: Any, icon: str, link: Any, permission: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link, "permission": _may(permission), "active": _is_at(link)}


def _is_at(link: Any) -> Any:
    """Whether the page is the one a link leads to, its filter included: unfold itself compares paths alone."""

    def at(request: HttpRequest) -> bool:
        path, _mark, query = str(link).partition("?")
        if not request.path.startswith(path):
            return False
        asked = request.GET.urlencode()
        return asked == query if query else not any(asked == other for other in (UNFINISHED, HALTED))

    return at


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Transcriber",
    "SITE_HEADER": "Transcriber",
    "SITE_SUBHEADER": _("Operator's console"),
    "SITE_URL": None,
    "SITE_SYMBOL": "graphic_eq",
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_LANGUAGES": True,
    "DASHBOARD_CALLBACK": "records.admin.home.home",
    "STYLES": [_style(f"{name}.css") for name in ("transcriber/console", "records/home", "records/list", "records/record")],
    "SCRIPTS": [_style("transcriber/console.js")],
    "COLORS": {
        # Slate and blue of OKLCH; each pair that meets as text and ground is AA in both themes (a test looks).
        "primary": {
            "50": "oklch(97% .014 254.604)",
            "100": "oklch(93.2% .032 255.585)",
            "200": "oklch(88.2% .059 254.128)",
            "300": "oklch(80.9% .105 251.813)",
            "400": "oklch(70.7% .165 254.624)",
            "500": "oklch(62.3% .214 259.815)",
            "600": "oklch(50% .2 262.881)",
            "700": "oklch(45% .19 264.376)",
            "800": "oklch(40% .16 265.638)",
            "900": "oklch(35% .13 265.522)",
            "950": "oklch(28.2% .091 267.935)",
        },
        "font": {
            "subtle-light": "var(--color-base-600)",
            "subtle-dark": "var(--color-base-400)",
            "default-light": "var(--color-base-700)",
            "default-dark": "var(--color-base-300)",
            "important-light": "var(--color-base-900)",
            "important-dark": "var(--color-base-100)",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "items": [{"title": _("Home"), "icon": "monitoring", "link": reverse_lazy("admin:index")}],
            },
            {
                "title": _("Recordings"),
                "separator": True,
                "items": [
                    _link(_("All"), "library_music", RECORDS, "records.view_audiorecord"),
                    _link(_("Unfinished"), "pending", format_lazy("{}?{}", RECORDS, UNFINISHED), "records.view_audiorecord"),
                    _link(_("Halted"), "front_hand", format_lazy("{}?{}", RECORDS, HALTED), "records.view_audiorecord"),
                ],
            },
            {
                "title": _("People"),
                "separator": True,
                "items": [
                    _link(_("Users"), "person", reverse_lazy("admin:auth_user_changelist"), "auth.view_user"),
                    _link(_("Groups"), "group", reverse_lazy("admin:auth_group_changelist"), "auth.view_group"),
                    _link(_("API tokens"), "key", reverse_lazy("admin:knox_authtoken_changelist"), "knox.view_authtoken"),
                    _link(_("Identities"), "badge", reverse_lazy("admin:signin_identity_changelist"), "signin.view_identity"),
                    _link(_("Failed sign-ins"), "lock", reverse_lazy("admin:axes_accessattempt_changelist"), "axes.view_accessattempt"),
                ],
            },
            {
                "title": _("Service"),
                "separator": True,
                "collapsible": True,
                "items": [
                    _link(_("Failed tasks"), "error", reverse_lazy("admin:django_q_failure_changelist"), "django_q.view_failure"),
                    {"title": _("API"), "icon": "api", "link": reverse_lazy("docs")},
                ],
            },
        ],
    },
}
