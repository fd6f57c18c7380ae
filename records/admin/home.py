"""The admin's home: what stands, what is at work, and where it hurts; each number leads to the list of just those records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.formats import date_format, number_format, time_format
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from records import history, overview
from records.admin import words
from records.history import Runs, Span
from records.overview import NEAR, AtLeast, AtSeat, Disk, Standing
from records.sentences import translated
from records.states import EventOutcome, HaltReason, State

LIST = "admin:records_audiorecord_changelist"
PAGE = "admin:records_audiorecord_change"
NEEDS_ACT = (HaltReason.STUCK, HaltReason.EXHAUSTED, HaltReason.UNCONFIRMED)
"""Halted records that go on only if somebody does something. The others were judged, or a person stopped them."""
DEFAULT_PERIOD = "7"
PERIODS = {"1": gettext_lazy("24 hours"), "7": gettext_lazy("7 days"), "30": gettext_lazy("30 days")}


# ---- what the template shows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """A number and the list of what was counted."""

    text: str
    link: str
    name: str = ""
    is_none: bool = False


@dataclass(frozen=True)
class Need:
    """Something that is not as it should be, and what helps."""

    level: str
    """bad, warn, or info for what nobody needs to do anything about."""
    text: str
    advice: str = ""
    links: list[Count] = field(default_factory=list)


@dataclass(frozen=True)
class StateRow:
    name: str
    step: str
    going: Count
    running: Count
    halted: Count
    entered: str
    entered_link: str
    worked: str
    worked_link: str
    limit: str
    percent: int
    """Of the limit, 100 at most."""
    level: str


@dataclass(frozen=True)
class WorkerRow:
    host: str
    seat: str
    since: datetime
    step: str = ""
    title: str = ""
    link: str = ""
    percent: int = 0
    worked: str = ""


@dataclass(frozen=True)
class DiskPanel:
    free: int
    total: int
    percent: int
    level: str
    bucket: str


@dataclass(frozen=True)
class StepTimes:
    name: str
    link: str
    runs: int
    median: str
    slow: str
    """Ninety-five of a hundred runs lasted no longer."""


@dataclass(frozen=True)
class Series:
    name: str
    link: str
    total: int
    values: list[int]


@dataclass(frozen=True)
class Charts:
    """Columns of numbers, one for each span of the period, for the charts and for the tables beside them."""

    labels: list[str]
    names: list[str]
    """The same in full."""
    done: list[int]
    done_total: str
    done_link: str
    """Those of them that came in within the period."""
    recorded: list[float]
    recorded_unit: str
    recorded_total: str
    times: list[StepTimes]
    median_s: list[list[float | None]]
    slow_s: list[list[float | None]]
    failures: list[Series]
    halts: list[Series]

    @property
    def failures_total(self) -> str:
        return _number(sum(series.total for series in self.failures))

    @property
    def halts_total(self) -> str:
        return _number(sum(series.total for series in self.halts))

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each span; the newest first."""
        rows = []
        for index, name in enumerate(self.names):
            times = [
                (words.took(timedelta(seconds=median)), words.took(timedelta(seconds=slow)))
                if median is not None and slow is not None
                else None
                for median, slow in ((self.median_s[step][index], self.slow_s[step][index]) for step in range(len(self.times)))
            ]
            rows.append(
                {
                    "name": name,
                    "done": self.done[index],
                    "recorded": number_format(self.recorded[index], 1),
                    "times": times,
                    "failures": [series.values[index] for series in self.failures],
                    "halts": [series.values[index] for series in self.halts],
                }
            )
        return rows[::-1]

    @property
    def data(self) -> dict[str, Any]:
        """What home.js draws."""
        return {
            "labels": self.labels,
            "names": self.names,
            "done": {"series": [{"name": _("Records done"), "values": self.done}]},
            "recorded": {"series": [{"name": _("Recorded, %(unit)s") % {"unit": self.recorded_unit}, "values": self.recorded}]},
            "times": [
                {"name": times.name, "median": self.median_s[step], "slow": self.slow_s[step]} for step, times in enumerate(self.times)
            ],
            "failures": {"series": [{"name": series.name, "values": series.values} for series in self.failures]},
            "halts": {"series": [{"name": series.name, "values": series.values} for series in self.halts]},
            "words": {
                "median": _("median"),
                "slow": _("95th percentile"),
                "units": [[86400, _("%(count)d d")], [3600, _("%(count)d h")], [60, _("%(count)d min")], [1, _("%(count)d s")]],
            },
        }


@dataclass(frozen=True)
class Home:
    now: datetime
    level: str
    headline: str
    summary: str
    needs: list[Need]
    is_empty: bool
    period: str
    periods: list[tuple[str, Any]]
    waiting: Count
    waiting_note: str
    running: Count
    running_note: str
    halted: Count
    reasons: list[Count]
    done_today: Count
    done_note: str
    states: list[StateRow]
    causes: list[Count]
    causes_are_whole: bool
    workers: list[WorkerRow]
    workers_alive: int
    workers_left_out: int
    disk: DiskPanel | None
    charts: Charts
    records_api: str


# ---- the page -----------------------------------------------------------------------------------------------------------------------


def home(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Called by unfold with the context of the index page; gives the context that its template reads.

    Staff who may not see records are shown nothing of them, their numbers included.
    """
    context["title"] = _("Home")
    if request.user.has_perm("records.view_audiorecord"):
        context["home"] = look(request, now=timezone.now())
    return context


def look(request: HttpRequest, *, now: datetime) -> Home:
    period = request.GET.get("period", DEFAULT_PERIOD)
    if period not in PERIODS:
        period = DEFAULT_PERIOD
    standings = overview.standings(now=now)
    seated = overview.workers(now=now)
    disk = overview.disk()
    due = overview.first_due_at()
    causes = overview.reasons_of_waiting()
    edges = edges_of(period, now=now)
    spans = history.spans(edges)
    today = [span for span in spans if span.begins >= _midnight(now)]
    halted = {
        reason: overview.added([standing.halted.get(reason, 0) for standing in standings])
        for reason in HaltReason.values
        if any(reason in standing.halted for standing in standings)
    }
    waiting = overview.added([standing.waiting for standing in standings])
    running = overview.added([standing.running for standing in standings])
    all_halted = overview.added(list(halted.values()))
    done_today = sum(span.done for span in today)
    is_empty = not (waiting or running or all_halted or any(span.done for span in spans)) and overview.is_empty()

    needs = [
        *_needs_of_workers(seated.alive),
        *_needs_of_providers(causes, now=now),
        *_needs_of_disk(disk),
        *_needs_of_halted(halted),
        *_needs_of_age(standings, now=now),
    ]
    level = next((level for level in ("bad", "warn") if any(need.level == level for need in needs)), "good")
    wanted = sum(need.level != "info" for need in needs)
    numbers = {"running": _number(running), "waiting": _number(waiting), "halted": _number(all_halted)}
    if wanted:
        headline = ngettext("One thing needs you", "%(count)d things need you", wanted) % {"count": wanted}
    elif is_empty:
        headline = _("Ready for the first recording")
    else:
        headline = _("All is well")
    summary = _("%(running)s at work, %(waiting)s waiting, %(halted)s halted.") % numbers

    return Home(
        now=now,
        level=level,
        headline=headline,
        summary="" if is_empty else summary,
        needs=needs,
        is_empty=is_empty,
        period=period,
        periods=list(PERIODS.items()),
        waiting=_count(waiting, work="waiting"),
        waiting_note=_due_note(due, waiting, now),
        running=_count(running, work="running"),
        running_note=ngettext("of %(count)d worker", "of %(count)d workers", seated.alive) % {"count": seated.alive},
        halted=_count(all_halted, halted="yes"),
        reasons=[_count(number, name=HaltReason(reason).label, reason=reason) for reason, number in halted.items()],
        done_today=Count(
            _number(done_today), list_of(state="done", created_from=_midnight(now).date().isoformat()), is_none=not done_today
        ),
        done_note=_("%(time)s recorded") % {"time": _hours(sum(span.recorded_ms for span in today))},
        states=[_state_row(standing, now=now) for standing in standings],
        causes=[_count(number, name=code, halted="no", error=code) for code, number in causes.by_code.most_common(8)],
        causes_are_whole=causes.is_whole,
        workers=[_worker_row(at_seat, now=now) for at_seat in seated.shown],
        workers_alive=seated.alive,
        workers_left_out=seated.alive - len(seated.shown),
        disk=_disk_panel(disk),
        charts=_charts(spans, period),
        records_api=request.build_absolute_uri(reverse("records")),
    )


def list_of(**filters: str) -> str:
    return f"{reverse(LIST)}?{urlencode(filters)}"


def edges_of(period: str, *, now: datetime) -> list[datetime]:
    """The borders of the period's spans: hours of the last day, or days from midnight to midnight, by the clock of whoever looks."""
    local = timezone.localtime(now)
    if period == "1":
        end = timezone.localtime(now).replace(minute=0, second=0, microsecond=0).astimezone(history.NEVER.tzinfo) + timedelta(hours=1)
        return [end - timedelta(hours=back) for back in range(24, -1, -1)]
    days = [local.date() - timedelta(days=back) for back in range(int(period) - 1, -2, -1)]
    return [datetime(day.year, day.month, day.day, tzinfo=local.tzinfo) for day in days]


def _midnight(now: datetime) -> datetime:
    return timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)


# ---- what needs somebody ------------------------------------------------------------------------------------------------------------


def _needs_of_workers(alive: int) -> list[Need]:
    if alive:
        return []
    if not settings.TRANSCRIBER.pipeline.workers:
        return [
            Need(
                "warn",
                _("No worker is there, and none is wanted: [pipeline] workers is 0."),
                _("Recordings are accepted and stand still until the service is started with workers."),
            )
        ]
    return [
        Need(
            "bad",
            _("No worker is alive."),
            _("Recordings are accepted and stand still. Start the service (make run), or manage.py qcluster on a machine of its own."),
        )
    ]


def _needs_of_providers(causes: overview.Reasons, *, now: datetime) -> list[Need]:
    needs = []
    for gate in overview.paused_providers():
        assert gate.paused_until is not None
        values = {"provider": gate.provider, "reason": translated(gate.pause_text)}
        tries = {"last": _clock(gate.updated), "next": _clock(gate.paused_until)}
        advice = (
            _("Last tried at %(last)s, tried again at %(next)s. Once the cause is put right, all go on by themselves.") % tries
            if gate.paused_until > now
            else _("Last tried at %(last)s; the next record that comes tries again. Once the cause is put right, all go on by themselves.")
            % tries
        )
        number = causes.by_code[gate.pause_code]
        waiting = [_count(number, name=_("waiting for it"), halted="no", error=gate.pause_code)] if number else []
        needs.append(Need("bad", _("The provider %(provider)s does not work for us: %(reason)s") % values, advice, waiting))
    return needs


def _needs_of_disk(disk: Disk | None) -> list[Need]:
    if disk is None or not (disk.is_full or disk.is_nearly_full):
        return []
    advice = _("Remove records that are not needed, or give the data folder a larger disk.")
    if disk.is_full:
        return [Need("bad", _("The disk is full: less is free than the largest recording takes."), advice)]
    return [Need("warn", _("The disk is nearly full."), advice)]


def _needs_of_halted(halted: dict[str, int]) -> list[Need]:
    total = overview.added(list(halted.values()))
    if not total:
        return []
    acts = any(reason in halted for reason in NEEDS_ACT)
    advice = {
        HaltReason.UNCONFIRMED: _(
            "Unconfirmed ones want to know whether the provider has accepted them. For the others put the cause right, then resume them at once."
        ),
        HaltReason.EXHAUSTED: _("Open a reason, put the cause right, and resume them all at once."),
        HaltReason.STUCK: _("Open a reason, put the cause right, and resume them all at once."),
    }
    return [
        Need(
            "bad" if acts else "info",
            ngettext("%(count)s record is halted.", "%(count)s records are halted.", total) % {"count": _number(total)},
            next((advice[reason] for reason in advice if reason in halted), ""),
            [_count(number, name=HaltReason(reason).label, reason=reason) for reason, number in halted.items()],
        )
    ]


def _needs_of_age(standings: Sequence[Standing], *, now: datetime) -> list[Need]:
    needs = []
    for standing in standings:
        share = standing.share_of_limit(now)
        if share >= NEAR:
            assert standing.working is not None
            values = {
                "state": State(standing.state).label,
                "time": words.span(now - standing.working.since),
                "limit": words.span(standing.limit),
            }
            needs.append(
                Need(
                    "warn",
                    _("A record in the state %(state)s has been worked on for %(time)s; its limit is %(limit)s.") % values,
                    _("Past its limit a record halts at the next failure. One that makes progress is not touched."),
                    [Count(_("Look at it"), reverse(PAGE, args=[standing.working.record_id]))],
                )
            )
    return needs


# ---- the parts ----------------------------------------------------------------------------------------------------------------------


def _count(number: int, *, name: Any = "", **filters: str) -> Count:
    return Count(_number(number), list_of(**filters), str(name), is_none=not number)


def _number(number: int) -> str:
    return str(number) if isinstance(number, AtLeast) else number_format(number, force_grouping=True)


def _clock(moment: datetime) -> str:
    return time_format(timezone.localtime(moment).time(), "H:i:s")


def _due_note(due: datetime | None, waiting: int, now: datetime) -> str:
    if not waiting or due is None:
        return _("nothing is in line")
    if due > now:
        return _("the next one is due in %(time)s") % {"time": words.span(due - now)}
    return _("the first in line for %(time)s") % {"time": words.span(now - due)}


def _state_row(standing: Standing, *, now: datetime) -> StateRow:
    share = standing.share_of_limit(now)
    halted = overview.added(list(standing.halted.values()))
    going = overview.added([standing.waiting, standing.running])
    return StateRow(
        name=str(State(standing.state).label),
        step=words.step_name(standing.step),
        going=_count(going, state=standing.state, halted="no"),
        running=_count(standing.running, state=standing.state, work="running"),
        halted=_count(halted, state=standing.state, halted="yes"),
        entered=words.span(now - standing.entered.since) if standing.entered else "",
        entered_link=reverse(PAGE, args=[standing.entered.record_id]) if standing.entered else "",
        worked=words.span(now - standing.working.since) if standing.working else "",
        worked_link=reverse(PAGE, args=[standing.working.record_id]) if standing.working else "",
        limit=words.span(standing.limit),
        percent=min(100, round(share * 100)),
        level="bad" if share >= 1 else "warn" if share >= NEAR else "good",
    )


def _worker_row(at_seat: AtSeat, *, now: datetime) -> WorkerRow:
    worker, record = at_seat.worker, at_seat.record
    row: dict[str, Any] = {"host": worker.host, "seat": str(worker.seat + 1), "since": worker.started_at}
    if record is None:
        return WorkerRow(**row)
    return WorkerRow(
        **row,
        step=words.step_name(at_seat.step),
        title=str(record),
        link=reverse(PAGE, args=[record.pk]),
        percent=round(record.progress * 100),
        worked=words.span(now - record.work_started_at) if record.work_started_at else "",
    )


def _disk_panel(disk: Disk | None) -> DiskPanel | None:
    if disk is None:
        return None
    level = "bad" if disk.is_full else "warn" if disk.is_nearly_full else "good"
    return DiskPanel(disk.free, disk.total, round(disk.used * 100), level, disk.bucket)


# ---- the charts ---------------------------------------------------------------------------------------------------------------------


def _charts(spans: list[Span], period: str) -> Charts:
    steps = list(words.STEPS)
    recorded_ms = [span.recorded_ms for span in spans]
    unit, name = (HOUR_MS, _("hours")) if not any(recorded_ms) or max(recorded_ms) >= 2 * HOUR_MS else (60_000, _("minutes"))
    median, slow = ([[_seconds(span.steps[step].percentile_ms(part)) for span in spans] for step in steps] for part in (0.5, 0.95))
    whole = [history.total(spans, step) for step in steps]
    return Charts(
        labels=[_label(span, period) for span in spans],
        names=[_full_label(span, period) for span in spans],
        done=[span.done for span in spans],
        done_total=_number(sum(span.done for span in spans)),
        recorded=[round(ms / unit, 2) for ms in recorded_ms],
        recorded_unit=name,
        recorded_total=_hours(sum(recorded_ms)),
        times=[_step_times(step, runs) for step, runs in zip(steps, whole, strict=True)],
        median_s=median,
        slow_s=slow,
        done_link=list_of(state="done", created=period),
        failures=[_series(step, spans, EventOutcome.FAILED) for step in steps],
        halts=[_series(step, spans, EventOutcome.HALTED, halted="yes") for step in steps],
    )


def _step_times(step: str, runs: Runs) -> StepTimes:
    median, slow = (runs.percentile_ms(part) for part in (0.5, 0.95))
    return StepTimes(
        name=words.step_name(step),
        link=list_of(step=step),
        runs=runs.times.total(),
        median="" if median is None else words.took(timedelta(milliseconds=median)),
        slow="" if slow is None else words.took(timedelta(milliseconds=slow)),
    )


def _series(step: str, spans: list[Span], outcome: str, **filters: str) -> Series:
    values = [span.steps[step].outcomes[outcome] for span in spans]
    return Series(words.step_name(step), list_of(step=step, **filters), sum(values), values)


HOUR_MS = 3_600_000


def _hours(milliseconds: int) -> str:
    """Sound is counted in hours, however many; below two of them also in minutes."""
    if milliseconds < 2 * HOUR_MS:
        return words.span(timedelta(milliseconds=milliseconds))
    return _("%(hours)s h") % {
        "hours": number_format(milliseconds / HOUR_MS, 0 if milliseconds >= 100 * HOUR_MS else 1, force_grouping=True)
    }


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 3)


def _label(span: Span, period: str) -> str:
    begins = timezone.localtime(span.begins)
    if period == "1":
        return time_format(begins.time(), "H:i")
    return f"{WEEKDAYS_ABBR[begins.weekday()]} {begins.day}" if period == "7" else date_format(begins, "j M")


def _full_label(span: Span, period: str) -> str:
    begins, ends = timezone.localtime(span.begins), timezone.localtime(span.ends)
    if period == "1":
        return f"{date_format(begins, 'j M')}, {time_format(begins.time(), 'H:i')}–{time_format(ends.time(), 'H:i')}"
    return date_format(begins, "l, j F")
