"""`/metrics` for Prometheus: read from the database when it is asked for, so that any process tells of all processes on all machines.

Labels are states, steps, outcomes, reasons and codes of ours: nothing that grows with the number of records, people or machines.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import accumulate

from django.conf import settings
from django.db import Error
from django.db.models import Count, Min
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from recognition.models import ProviderGate
from records.models import AudioRecord, SeatedWorker
from records.operations import tally
from records.operations.selection import unfinished
from records.pipeline.stages import STAGES
from records.states import EventOutcome, HaltReason, Origin
from records.trouble import is_trouble

logger = logging.getLogger(__name__)


def metrics(request: HttpRequest) -> HttpResponse:
    if not is_allowed(request):
        return HttpResponse("403: the token of [web] metrics_token is wanted, or a connection from this machine\n", "text/plain", 403)
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    try:
        return HttpResponse(encode(registry), content_type=content_type)
    except Error as error:
        if not is_trouble(error):
            raise
        logger.error("no metrics: the database does not answer (%s)", type(error).__name__)
        return HttpResponse("503: the database does not answer\n", "text/plain", 503)


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
    """What was done: all that was ever written into the journal, whether its record is still there or not."""

    def collect(self) -> Iterator[Metric]:
        runs: Counter[tuple[str, str]] = Counter({(stage.name, outcome): 0 for stage in STAGES for outcome in BY_WORKERS})
        acts: Counter[str] = Counter(dict.fromkeys(BY_PEOPLE, 0))
        lasted: dict[str, Counter[int]] = {stage.name: Counter() for stage in STAGES}
        milliseconds: Counter[str] = Counter()
        for kind in tally.counted():
            if kind.origin != Origin.WORKER:
                acts[kind.outcome] += kind.runs
                continue
            runs[kind.step, kind.outcome] += kind.runs
            lasted.setdefault(kind.step, Counter())[kind.up_to_ms] += kind.runs
            milliseconds[kind.step] += kind.duration_ms
        counted = CounterMetricFamily(
            "transcriber_step_runs",
            "Runs of a step that left a row in the journal (a poll that found nothing leaves none).",
            labels=["step", "outcome"],
        )
        for labels, number in runs.items():
            counted.add_metric(labels, number)
        yield counted
        done = CounterMetricFamily(
            "transcriber_acts", "What people did to records, through the admin, the API or a command.", labels=["outcome"]
        )
        for outcome, number in acts.items():
            done.add_metric([outcome], number)
        yield done
        durations = HistogramMetricFamily("transcriber_step_duration_seconds", "How long those runs lasted.", labels=["step"])
        for step, by_bound in lasted.items():
            durations.add_metric([step], buckets=_buckets(by_bound), sum_value=milliseconds[step] / 1000)
        yield durations


BY_WORKERS = (EventOutcome.ADVANCED.value, EventOutcome.FAILED.value, EventOutcome.HALTED.value)
BY_PEOPLE = (EventOutcome.HALTED.value, EventOutcome.RESUMED.value, EventOutcome.RESTARTED.value, EventOutcome.REBUILT.value)
"""Told from the beginning as 0: a counter that appears with its first event has not grown, as Prometheus sees it."""


def _buckets(by_bound: Counter[int]) -> list[tuple[str, float]]:
    """Upper bound in seconds and how many runs did not exceed it, as Prometheus wants them: each holds all the smaller ones."""
    numbers = accumulate(by_bound[bound] for bound in (*tally.BOUNDS_MS, tally.LONGER))
    return list(zip([*(str(bound / 1000) for bound in tally.BOUNDS_MS), "+Inf"], numbers, strict=True))


registry = CollectorRegistry()
registry.register(Queue())
registry.register(Journal())
