"""What must agree between the stage table, django-q2's settings, the database and the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connection
from django.utils.module_loading import import_string

from recognition import registry
from transcriber.config import Config


@register()
def check_limits(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """A record whose work fails again and again must end as exhausted, which says what is wrong, before the clock says no more than stuck."""
    from records.pipeline.dispatch import configured_rules

    config: Config = settings.TRANSCRIBER
    pauses = configured_rules().longest_pauses()
    if pauses < config.pipeline.own_work_limit:
        return []
    return [
        Error(
            f"With [pipeline] max_attempts = {config.pipeline.max_attempts} the pauses between attempts last up to {_minutes(pauses)}, "
            f"no less than own_work_limit ({_minutes(config.pipeline.own_work_limit)}).",
            hint="Lower max_attempts or raise own_work_limit.",
            id="transcriber.E001",
        )
    ]


@register()
def check_cluster(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """What `transcriber.seats` relies on."""
    found: dict[str, Any] = settings.Q_CLUSTER
    expected = {
        "workers": (settings.TRANSCRIBER.pipeline.workers + 1, "one worker for each seat, and one for tasks"),
        "broker_class": ("transcriber.broker.RecordBroker", "it hands out the seats"),
        "recycle": (1, "a worker that leaves its seat is replaced by a fresh process"),
        "save_limit": (-1, "nothing is kept of a task that went well"),
    }
    return [
        Error(f"Q_CLUSTER[{key!r}] must be {value!r}: {why}.", hint="Set it in transcriber/settings.py.", id="transcriber.E002")
        for key, (value, why) in expected.items()
        if found.get(key) != value
    ]


@register()
def check_provider(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """A mistyped name would let recordings in and leave them standing."""
    config: Config = settings.TRANSCRIBER
    problems = []
    if config.recognition.provider not in registry.BUILT_IN:
        try:
            import_string(config.recognition.provider)
        except ImportError:
            known = ", ".join(registry.BUILT_IN)
            problems.append(
                Error(
                    f"[recognition] provider = {config.recognition.provider!r} names no provider.",
                    hint=f"Use {known}, or the dotted path of a class of your own.",
                    id="transcriber.E005",
                )
            )
    return problems


@register(Tags.database)
def check_sqlite(app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Several processes write to one file, and what was accepted must survive a power cut."""
    if connection.vendor != "sqlite" or "default" not in (databases or ()):
        return []
    with connection.cursor() as cursor:
        modes = {name: cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    problems = []
    if modes["journal_mode"] != "wal" or connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
        problems.append(Error("SQLite must run with journal_mode=WAL and transaction_mode=IMMEDIATE.", id="transcriber.E003"))
    if modes["synchronous"] != 2:
        problems.append(Error("SQLite must run with synchronous=FULL.", id="transcriber.E004"))
    return problems


@register(Tags.security)
def check_debug(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    web = settings.TRANSCRIBER.web
    if web.debug and (web.https or "*" in web.allowed_hosts or web.listen not in ("127.0.0.1", "localhost", "::1")):
        return [
            checks.Warning(
                "[web] debug shows the inside of the service to whoever can reach it.",
                hint="Set debug = false where others can reach it.",
                id="transcriber.W001",
            )
        ]
    return []


@register(Tags.security)
def check_sign_in(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    address = urlsplit(settings.TRANSCRIBER.signin.provider)
    if address.scheme != "http" or address.hostname in ("127.0.0.1", "localhost", "::1"):
        return []
    return [
        checks.Warning(
            "[signin] provider is spoken to without encryption: whoever is on the way can sign in as anybody.",
            hint="Use its https address.",
            id="transcriber.W002",
        )
    ]


@register(Tags.security)
def check_proxies(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    web = settings.TRANSCRIBER.web
    if not web.https or web.proxies:
        return []
    return [
        checks.Warning(
            "With [web] https and proxies = 0 visitors can't be told apart: nobody who tries one password with many names is slowed down.",
            hint="Set [web] proxies to the number of proxies in front that add to X-Forwarded-For.",
            id="transcriber.W003",
        )
    ]


@register(Tags.security)
def check_newcomers(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    signin = settings.TRANSCRIBER.signin
    if not signin.provider or not signin.create_users or signin.users:
        return []
    return [
        checks.Warning(
            "Everybody whom [signin] provider lets through becomes a user and may send recordings, which may cost money.",
            hint="Name in [signin] users the groups that may sign in, or set create_users = false.",
            id="transcriber.W004",
        )
    ]


def _minutes(span: Any) -> str:
    return f"{span.total_seconds() / 60:g} min"
