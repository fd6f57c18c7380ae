"""`/metrics` for Prometheus: read from the database when it is asked for, so that any process tells of all processes on all machines.

Labels are states, steps, outcomes, reasons and codes of ours: nothing that grows with the number of records, people or machines.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Min, Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from recognition.models import ProviderGate
from records.models import AudioRecord, RecordEvent, SeatedWorker
from records.operations.selection import unfinished
from records.pipeline.stages import STAGES
from records.states import HaltReason, Origin

SETTLED_AFTER = timedelta(minutes=10)
"""Rows of the journal older than that are all committed, whatever the clocks of the machines say, and are counted but once."""


def metrics(request: HttpRequest) -> HttpResponse:
    if not is_allowed(request):
        return HttpResponse("403: the token of [web] metrics_token is wanted, or a connection from this machine\n", "text/plain", 403)
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def is_allowed(request: HttpRequest) -> bool:
    """With the token, where there is one. Without, from this machine, unless a proxy on it asks for somebody elsewhere."""
    token = settings.TRANSCRIBER.web.metrics_token
    if token:
        return hmac.compare_digest(request.headers.get("Authorization", "").encode(), f"Bearer {token}".encode())
    if settings.TRANSCRIBER.web.https or any(name in request.headers for name in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


class Queue(Collector):
    """How things stand. Each number is one look into an index that holds what is unfinished alone: the archive costs nothing."""

    def __init__(self, clock: Callable[[], datetime] = timezone.now) -> None:
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        now = self._clock()
        yield from self._records(now)
        yield from self._due(now)
        workers = SeatedWorker.objects.alive(now=now).count()
        yield GaugeMetricFamily("transcriber_workers", "Workers alive on all machines, at work or waiting for it.", value=workers)
        paused = GaugeMetricFamily("transcriber_providers_paused", "Providers that do not work for us at the moment.", labels=["reason"])
        gates = ProviderGate.objects.filter(kind="", paused_until__isnull=False)
        for code, number in gates.values_list("pause_code").annotate(number=Count("pk")).order_by():
            paused.add_metric([code], number)
        yield paused

    def _records(self, now: datetime) -> Iterator[Metric]:
        records = GaugeMetricFamily(
            "transcriber_records",
            "Records that are not done, by state; halt_reason is empty where they go on.",
            labels=["state", "halt_reason"],
        )
        oldest = GaugeMetricFamily(
            "transcriber_oldest_record_age_seconds", "Age in its state of the oldest record that is not halted.", labels=["state"]
        )
        found = unfinished(AudioRecord.objects.order_by()).values_list("state", "halt_reason")
        standing = {kind[:2]: kind[2:] for kind in found.annotate(number=Count("pk"), since=Min("state_entered_at"))}
        for stage in STAGES:
            state = stage.state.value
            for reason in ("", *HaltReason.values):
                number, since = standing.get((state, reason), (0, now))
                records.add_metric([state, reason], number)
                if not reason:
                    oldest.add_metric([state], max(0.0, (now - since).total_seconds()))
        yield records
        yield oldest

    def _due(self, now: datetime) -> Iterator[Metric]:
        due = unfinished(AudioRecord.objects.filter(halted_at__isnull=True, delay_time__lte=now))
        found = due.aggregate(number=Count("pk"), since=Min("delay_time"))
        yield GaugeMetricFamily("transcriber_due_records", "Records that wait for nothing but a free worker.", value=found["number"])
        yield GaugeMetricFamily(
            "transcriber_oldest_due_seconds",
            "For how long the record that is next has been due.",
            value=(now - found["since"]).total_seconds() if found["since"] else 0.0,
        )


class Journal(Collector):
    """What was done: the sums over the journal. What has settled is remembered; a scrape reads what came since."""

    def __init__(self, clock: Callable[[], datetime] = timezone.now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._settled_until: datetime | None = None
        self._runs: Counter[tuple[str, str, bool]] = Counter()
        self._milliseconds: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            runs, milliseconds = self._sums(self._clock())
        counted = CounterMetricFamily(
            "transcriber_step_runs",
            "Runs of a step that left a row in the journal (a poll that found nothing leaves none).",
            labels=["step", "outcome"],
        )
        acts = CounterMetricFamily(
            "transcriber_acts", "What people did to records, through the admin, the API or a command.", labels=["outcome"]
        )
        lasted = SummaryMetricFamily("transcriber_step_duration_seconds", "How long those runs lasted.", labels=["step"])
        done: Counter[str] = Counter()
        per_step: Counter[str] = Counter()
        for (step, outcome, by_worker), number in sorted(runs.items()):
            if by_worker:
                counted.add_metric([step, outcome], number)
                per_step[step] += number
            else:
                done[outcome] += number
        for outcome, number in sorted(done.items()):
            acts.add_metric([outcome], number)
        for step, number in sorted(per_step.items()):
            lasted.add_metric([step], count_value=number, sum_value=milliseconds[step] / 1000)
        yield counted
        yield acts
        yield lasted

    def _sums(self, now: datetime) -> tuple[Counter[tuple[str, str, bool]], Counter[str]]:
        settled = now - SETTLED_AFTER
        if self._settled_until is None or settled > self._settled_until:
            runs, milliseconds = _count(self._settled_until, settled)
            self._runs += runs
            self._milliseconds += milliseconds
            self._settled_until = settled
        fresh_runs, fresh_milliseconds = _count(self._settled_until, None)
        return self._runs + fresh_runs, self._milliseconds + fresh_milliseconds


def _count(since: datetime | None, until: datetime | None) -> tuple[Counter[tuple[str, str, bool]], Counter[str]]:
    """Rows of the journal from `since` on and before `until`, by step, outcome and whether a worker wrote them; and milliseconds by step."""
    events = RecordEvent.objects.order_by()
    if since:
        events = events.filter(created__gte=since)
    if until:
        events = events.filter(created__lt=until)
    runs: Counter[tuple[str, str, bool]] = Counter()
    milliseconds: Counter[str] = Counter()
    kinds = events.values_list("step", "outcome", "origin").annotate(number=Count("pk"), total=Sum("duration_ms"))
    for step, outcome, origin, number, total in kinds:
        by_worker = origin == Origin.WORKER
        runs[step, outcome, by_worker] += number
        if by_worker:
            milliseconds[step] += total or 0
    return runs, milliseconds


registry = CollectorRegistry()
registry.register(Queue())
registry.register(Journal())
