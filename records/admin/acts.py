"""The acts on records: each says first what it will come to and what it may cost, then makes one call, and tells what came of it."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from records.admin import words
from records.models import AudioRecord
from records.operations import control, selection
from records.operations.control import Report
from records.pipeline.stages import STAGES
from records.states import HaltReason, Origin, State

CHOSEN = "chosen"
"""The field in which a confirmation carries the ids that were ticked: one field for any number of them."""


class Kind(NamedTuple):
    """So many of the chosen records are in that state, and so many of those are halted, for each reason."""

    state: State
    number: str
    halted: list[tuple[HaltReason, str]]


class Option(NamedTuple):
    """A state to restart from."""

    state: State
    step: str
    moves: int
    told: str
    cost: str
    is_paid: bool
    is_chosen: bool


class RecordActs(ModelAdmin):  # type: ignore[type-arg]  # no generic at run time
    """Halt, resume and restart, for what was chosen in the list and for one record alike."""

    actions = ("resume", "halt", "restart")
    actions_selection_counter = True

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> HttpResponse | None:
        return self._from_list(request, "resume", queryset)

    @admin.action(description=gettext_lazy("Halt"), permissions=["change"])
    def halt(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> HttpResponse | None:
        return self._from_list(request, "halt", queryset)

    @admin.action(description=gettext_lazy("Restart from a state"), permissions=["change"])
    def restart(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> HttpResponse | None:
        return self._from_list(request, "restart", queryset)

    # ---- from the list ----------------------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST":
            if not self.has_change_permission(request):
                raise PermissionDenied
            # What was ticked comes back from a confirmation in one field; what is no id is no record's.
            sent = request.POST.copy()
            ticked = sent.getlist(CHOSEN)[0].split(",") if CHOSEN in sent else sent.getlist(ACTION_CHECKBOX_NAME)
            is_across = sent.get("select_across") == "1"
            sent.setlist(ACTION_CHECKBOX_NAME, ["all"] if is_across else [text for text in ticked if _is_id(text)])
            request.POST = sent  # type: ignore[assignment]
        return super().changelist_view(request, extra_context)

    def _from_list(self, request: HttpRequest, act: str, records: QuerySet[AudioRecord]) -> HttpResponse | None:
        """None once it is done: Django then goes back to the list, with its filters. The records are found anew by the same filters each time."""
        if request.POST.get("only") == "dead":
            records = records.filter(control.DEAD_OPERATION)
        if "confirmed" in request.POST and self._do(request, act, records):
            return None
        is_across = request.POST.get("select_across") == "1"
        carried = {
            "action": act,
            "index": "0",
            "select_across": "1" if is_across else "0",
            CHOSEN: "" if is_across else ",".join(request.POST.getlist(ACTION_CHECKBOX_NAME)),
            "only": request.POST.get("only", ""),
        }
        return self._ask(request, act, records, carried=carried, address=request.get_full_path(), back=request.get_full_path())

    # ---- of one record ----------------------------------------------------------------------------------------------------------

    def halt_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        return self._of_one(request, "halt", object_id)

    def resume_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        return self._of_one(request, "resume", object_id)

    def restart_one(self, request: HttpRequest, object_id: uuid.UUID) -> HttpResponse:
        return self._of_one(request, "restart", object_id)

    def _of_one(self, request: HttpRequest, act: str, object_id: uuid.UUID) -> HttpResponse:
        """Asks where it is gone to, acts where it is sent. Goes back to the list that it came from (`_changelist_filters`), else to the page."""
        record = get_object_or_404(AudioRecord, pk=object_id)
        if not self.has_change_permission(request, record):
            raise PermissionDenied
        records = AudioRecord.objects.filter(pk=object_id)
        back = reverse("admin:records_audiorecord_change", args=[object_id])
        if (filters := request.GET.get("_changelist_filters")) is not None:
            back = f"{reverse('admin:records_audiorecord_changelist')}?{filters}"
        if request.method == "POST" and self._do(request, act, records):
            return HttpResponseRedirect(back)
        return self._ask(request, act, records, carried={}, address=request.get_full_path(), back=back, record=record)

    # ---- for both ---------------------------------------------------------------------------------------------------------------

    def _do(self, request: HttpRequest, act: str, records: QuerySet[AudioRecord]) -> bool:
        """False where it can't be done, since nobody said from which state."""
        by, now, state = acting(request), timezone.now(), None
        if act == "halt":
            report = control.halt(records, by=by, now=now)
        elif act == "resume":
            # Who resumes from a record's own page has read there what it is worth.
            dead_too = "confirmed" not in request.POST or "dead_too" in request.POST
            report = control.resume(records, by=by, now=now, dead_too=dead_too)
        else:
            state = _state(request.POST.get("state"))
            if state is None:
                return False
            report = control.restart(records, state, by=by, now=now)
        self.message_user(request, outcome_of(act, report, state=state), messages.SUCCESS if report.changed else messages.WARNING)
        return True

    def _ask(
        self,
        request: HttpRequest,
        act: str,
        records: QuerySet[AudioRecord],
        *,
        carried: dict[str, str],
        address: str,
        back: str,
        record: AudioRecord | None = None,
    ) -> HttpResponse:
        kinds = selection.kinds(records)
        total = sum(number for _state, _reason, number in kinds)
        # What was said already stays said where the page has to ask again.
        state = _state(request.POST.get("state") or request.GET.get("state"))
        if state is None and (request.POST.get("only") or request.GET.get("only")) == "dead":
            state = State.NORMALIZED
        question: dict[str, Any] = {
            "halt": lambda: _halting(records),
            "resume": lambda: _resuming(records),
            "restart": lambda: _restarting(kinds, state),
        }[act]()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "act": act,
            "title": {"halt": _("Halt"), "resume": _("Resume"), "restart": _("Restart")}[act],
            "lead": _lead(act, total),
            "record": record,
            "total": total,
            "kinds": [_kind(state, kinds) for state in State if any(kind[0] == state for kind in kinds)],
            "carried": {name: value for name, value in carried.items() if value},
            "address": address,
            "back": back,
            "filters": request.GET.get("_changelist_filters"),
            "is_unanswered": "confirmed" in request.POST and act == "restart",
            **question,
        }
        return TemplateResponse(request, "admin/records/audiorecord/act.html", context)


# ---- what an act will come to -----------------------------------------------------------------------------------------------------------


def _lead(act: str, total: int) -> str:
    lead = {
        "halt": ngettext("Halt %(number)s record?", "Halt %(number)s records?", total),
        "resume": ngettext("Resume %(number)s record?", "Resume %(number)s records?", total),
        "restart": ngettext("Restart %(number)s record?", "Restart %(number)s records?", total),
    }[act]
    return lead % {"number": number_of(total)}


def _kind(state: State, kinds: list[tuple[str, str, int]]) -> Kind:
    found = [(reason, number) for of, reason, number in kinds if of == state]
    halted = [(HaltReason(reason), number_of(number)) for reason, number in found if reason]
    return Kind(state, number_of(sum(number for _reason, number in found)), halted)


def _halting(records: QuerySet[AudioRecord]) -> dict[str, Any]:
    foreseen = control.foresee(records, control.passed_over_by_halt())
    held = records.order_by().filter(acquisition_id__isnull=False).count()
    notes = [
        ngettext(
            "%(number)s record stands still until somebody resumes it.",
            "%(number)s records stand still until somebody resumes them.",
            foreseen.changed,
        )
        % {"number": number_of(foreseen.changed)}
    ]
    if held:
        notes.append(
            ngettext(
                "%(number)s of them is being worked on now: what its step has done is dropped, and done anew later.",
                "%(number)s of them are being worked on now: what their steps have done is dropped, and done anew later.",
                held,
            )
            % {"number": number_of(held)}
        )
    return {"changes": foreseen.changed, "notes": notes, "passed_over": reasons_of(foreseen)}


def _resuming(records: QuerySet[AudioRecord]) -> dict[str, Any]:
    foreseen = control.foresee(records, control.passed_over_by_resume(dead_too=False))
    dead = foreseen.passed_over.pop("dead", 0)
    notes = [
        ngettext(
            "%(number)s record goes on from where it stands, with its attempts and the clock of its state begun anew.",
            "%(number)s records go on from where they stand, with their attempts and the clocks of their states begun anew.",
            foreseen.changed,
        )
        % {"number": number_of(foreseen.changed)}
    ]
    goes_on = selection.halted(records).exclude(
        halt_reason=HaltReason.UNCONFIRMED
    )  # its submission is a question, and none that lies ahead
    costs = [
        ngettext(
            "%(number)s record goes on to be submitted to %(provider)s, which is paid for.",
            "%(number)s records go on to be submitted to %(provider)s, each of which is paid for.",
            number,
        )
        % {"number": number_of(number), "provider": provider}
        for provider, number in selection.paid_submissions(goes_on).items()
    ]
    told = ""
    if dead:
        told = ngettext(
            "The operation of %(number)s record is dead at the provider: resuming would only ask for it again, and fail as before.",
            "The operations of %(number)s records are dead at the provider: resuming would only ask for them again, and fail as before.",
            dead,
        ) % {"number": number_of(dead)}
    return {
        "changes": foreseen.changed + dead,
        "notes": notes if foreseen.changed else [],
        "costs": costs,
        "dead": dead,
        "dead_told": told,
        "is_all_dead": dead and not foreseen.changed,
        "passed_over": reasons_of(foreseen),
    }


def _restarting(kinds: list[tuple[str, str, int]], chosen: State | None) -> dict[str, Any]:
    total = sum(number for _state, _reason, number in kinds)
    provider = settings.TRANSCRIBER.recognition.provider
    is_paid = selection.costs_money(provider)
    options = []
    for stage in STAGES:
        moves = sum(number for state, _reason, number in kinds if state in selection.reached(stage.state))
        is_new = STAGES.is_before(stage.state, State.SUBMITTED)
        options.append(
            Option(
                state=stage.state,
                step=words.step_name(stage.name),
                moves=moves,
                told=_moves(moves, total),
                cost=_cost(moves, provider, is_paid=is_paid) if is_new and moves else "",
                is_paid=is_new and is_paid,
                is_chosen=stage.state == chosen,
            )
        )
    return {
        "changes": max((option.moves for option in options), default=0),
        "notes": [
            _("A restart moves records back to a state, removes what the steps from there on produced, and lets halted ones go on."),
            _("Earlier recognitions stay as history."),
        ],
        "options": options,
    }


def _moves(moves: int, total: int) -> str:
    if not moves:
        return _("None of them has reached it.")
    if moves == total:
        return ngettext("It moves.", "All %(number)s move.", moves) % {"number": number_of(moves)}
    return ngettext(
        "%(number)s of %(total)s moves; the rest never reached it.", "%(number)s of %(total)s move; the rest never reached it.", moves
    ) % {
        "number": number_of(moves),
        "total": number_of(total),
    }


def _cost(attempts: int, provider: str, *, is_paid: bool) -> str:
    if is_paid:
        told = ngettext(
            "%(number)s new recognition by %(provider)s, which is paid for.",
            "%(number)s new recognitions by %(provider)s, each of which is paid for.",
            attempts,
        )
    else:
        told = ngettext(
            "%(number)s new recognition by %(provider)s, which costs nothing.",
            "%(number)s new recognitions by %(provider)s, which cost nothing.",
            attempts,
        )
    return told % {"number": number_of(attempts), "provider": provider}


# ---- what an act came to ----------------------------------------------------------------------------------------------------------------

PASSED_OVER = {
    "done": ngettext_lazy("%(number)s done already", "%(number)s done already", "count"),
    "halted_already": ngettext_lazy("%(number)s halted already", "%(number)s halted already", "count"),
    "not_halted": ngettext_lazy("%(number)s not halted", "%(number)s not halted", "count"),
    "unconfirmed": ngettext_lazy(
        "%(number)s unconfirmed: its provider has to be asked first",
        "%(number)s unconfirmed: their providers have to be asked first",
        "count",
    ),
    "dead": ngettext_lazy(
        "%(number)s whose operation is dead: it has to be restarted",
        "%(number)s whose operations are dead: they have to be restarted",
        "count",
    ),
    "not_reached": ngettext_lazy("%(number)s that never reached that state", "%(number)s that never reached that state", "count"),
}

DONE = {
    "halt": ngettext_lazy("Halted %(number)s record.", "Halted %(number)s records.", "count"),
    "resume": ngettext_lazy("Resumed %(number)s record.", "Resumed %(number)s records.", "count"),
    "restart": ngettext_lazy("Restarted from “%(state)s”: %(number)s record.", "Restarted from “%(state)s”: %(number)s records.", "count"),
}


def outcome_of(act: str, report: Report, *, state: State | None = None) -> str:
    """What an act came to: `Halted 12 records. Passed over 3: 2 done already, 1 halted already.`"""
    told = DONE[act] % {"count": report.changed, "number": number_of(report.changed), "state": state.label if state else ""}
    if not report.passed_over:
        return told
    parts = {"number": number_of(sum(report.passed_over.values())), "reasons": ", ".join(reasons_of(report))}
    return f"{told} {_('Passed over %(number)s: %(reasons)s.') % parts}"


def reasons_of(report: Report) -> list[str]:
    """How many were (or will be) passed over, reason by reason."""
    return [
        PASSED_OVER[reason] % {"count": number, "number": number_of(number)} if reason in PASSED_OVER else f"{number} {reason}"
        for reason, number in report.passed_over.items()
    ]


def number_of(number: int) -> str:
    return number_format(number, force_grouping=True)


def _state(text: str | None) -> State | None:
    """A state to restart from."""
    return next((stage.state for stage in STAGES if stage.state == text), None)


def _is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def person(request: HttpRequest) -> User:
    assert request.user.is_authenticated  # the admin lets nobody else in
    return request.user


def acting(request: HttpRequest) -> control.By:
    return control.By(Origin.ADMIN, person(request))
