"""The acts on records: each narrows, asks, makes one call and reports."""

from __future__ import annotations

from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from records.admin import words
from records.models import AudioRecord
from records.operations import control
from records.pipeline.stages import STAGES
from records.states import Origin, State


class RecordActs(ModelAdmin):  # type: ignore[type-arg]  # no generic at run time
    """Halt, resume and restart, for what was chosen in the list and for one record alike."""

    actions = ("halt", "resume", "restart")
    actions_selection_counter = True

    @admin.action(description="Halt", permissions=["change"])
    def halt(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> None:
        self._report(request, "Halted", control.halt(queryset, by=acting(request), now=timezone.now()))

    @admin.action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> None:
        self._report(request, "Resumed", control.resume(queryset, by=acting(request), now=timezone.now()))

    @admin.action(description="Restart from a state …", permissions=["change"])
    def restart(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> HttpResponse | None:
        """Ask from which state, then do it. What was chosen in the list travels along in the form."""
        chosen = [(name, value) for name in (ACTION_CHECKBOX_NAME, "action", "select_across") for value in request.POST.getlist(name)]
        return self._restart(request, queryset, carried=chosen, back=request.get_full_path())

    def _restart(
        self, request: HttpRequest, records: QuerySet[AudioRecord], *, carried: list[tuple[str, str]], back: str
    ) -> HttpResponse | None:
        """None once it is done."""
        asked = request.POST.get("state", "") if "confirmed" in request.POST else None
        if asked in {stage.state.value for stage in STAGES}:
            state = State(asked)
            self._report(request, f"Restarted from {state.value}:", control.restart(records, state, by=acting(request), now=timezone.now()))
            return None
        found = dict(records.order_by().values_list("state").annotate(Count("pk")))
        order = list(State)
        options = [
            {
                "state": stage.state.value,
                "step": stage.name,
                "moves": sum(found.get(state.value, 0) for state in order[order.index(stage.state) :]),
                "may_cost": STAGES.is_before(stage.state, State.SUBMITTED),
            }
            for stage in STAGES
        ]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": "Restart from a state",
            "total": words.count_of(sum(found.values())),
            "found": [(state.value, found[state.value]) for state in order if state.value in found],
            "options": options,
            "carried": carried,
            "back": back,
            "nothing_chosen": asked is not None,
        }
        return TemplateResponse(request, "admin/records/audiorecord/restart.html", context)

    def _report(self, request: HttpRequest, done: str, report: control.Report) -> None:
        self.message_user(request, words.outcome_of(done, report), messages.SUCCESS if report.changed else messages.WARNING)


def person(request: HttpRequest) -> User:
    assert request.user.is_authenticated  # the admin lets nobody else in
    return request.user


def acting(request: HttpRequest) -> control.By:
    return control.By(Origin.ADMIN, person(request))
