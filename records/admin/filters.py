"""The filters of the list: django-unfold's, with controls that every browser has. What each one means is said by `selection.Selection`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.admin import ModelAdmin
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from recognition import registry
from records.admin import words
from records.models import AudioRecord
from records.operations.selection import Selection, Work
from records.pipeline.stages import STAGES
from records.states import HaltReason, State

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

UNFINISHED = "unfinished"


class Chosen(forms.Form):
    """One control that bears the filter's own name; django-unfold's would say "By state"."""

    def __init__(self, *, name: str, label: _StrOrPromise, data: dict[str, Any], field: forms.Field) -> None:
        super().__init__(data=data, auto_id="filter-%s")
        field.label, field.required = label, False
        self.fields[name] = field


class Means:
    """What a filter shares with the others: it narrows by a selection, and says in a chip what was chosen."""

    parameter_name: str
    title: _StrOrPromise
    value: Callable[[], str | None]

    def selection(self) -> Selection:
        """Empty where nothing was chosen, or nothing that there is."""
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
        chosen = self.selection()
        if self.is_unreadable():
            return queryset.none()
        return chosen.among(queryset, now=timezone.now()) if chosen else queryset

    def is_unreadable(self) -> bool:
        """Something was asked for that there is not (an owner who is gone, a mistyped day): that finds nothing, and never everything."""
        return bool((self.value() or "").strip()) and not self.selection()

    def told(self) -> str:
        """For the chip: what narrows the list; empty where nothing does."""
        return _("%(value)s (unknown)") % {"value": self.value()} if self.is_unreadable() else self.chip()

    def chip(self) -> str:
        """What was chosen, in words; empty where nothing was."""
        raise NotImplementedError

    def parameters(self) -> list[str]:
        return [self.parameter_name]


class ChoiceFilter(Means, DropdownFilter):  # type: ignore[misc]  # unfold ships no types
    """Fixed choices; a value that is none of them finds nothing."""

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, _StrOrPromise]]:
        return self.options()

    def chosen(self) -> str | None:
        value = self.value()
        return value if value in {str(option) for option, _label in self.lookup_choices} else None

    def chip(self) -> str:
        return str(dict(self.lookup_choices)[chosen]) if (chosen := self.chosen()) else ""

    def selection(self) -> Selection:
        chosen = self.chosen()
        return Selection() if chosen is None else self.meaning(chosen)

    def meaning(self, chosen: str) -> Selection:
        raise NotImplementedError

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        field = forms.ChoiceField(choices=[("", _("Any")), *self.lookup_choices], widget=UnfoldAdminSelectWidget)
        name = self.parameter_name
        yield {"form": Chosen(name=name, label=self.title, data={name: self.chosen() or ""}, field=field)}


class StateFilter(ChoiceFilter):
    title = gettext_lazy("State")
    parameter_name = "state"

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        return [(UNFINISHED, _("Unfinished")), *((state.value, state.label) for state in State)]

    def meaning(self, chosen: str) -> Selection:
        return Selection(unfinished=True) if chosen == UNFINISHED else Selection(states=(State(chosen),))


class HaltedFilter(ChoiceFilter):
    title = gettext_lazy("Halted")
    parameter_name = "halted"

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        return [("yes", _("Yes")), ("no", _("No"))]

    def meaning(self, chosen: str) -> Selection:
        return Selection(halted=chosen == "yes")


class ReasonFilter(ChoiceFilter):
    title = gettext_lazy("Halt reason")
    parameter_name = "reason"

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        return [(reason.value, reason.label) for reason in HaltReason]

    def meaning(self, chosen: str) -> Selection:
        return Selection(reasons=(HaltReason(chosen),))


class WorkFilter(ChoiceFilter):
    title = gettext_lazy("Work")
    parameter_name = "work"

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        return [(Work.WAITING.value, _("Waiting")), (Work.RUNNING.value, _("At work"))]

    def meaning(self, chosen: str) -> Selection:
        return Selection(work=Work(chosen))


class StepFilter(ChoiceFilter):
    title = gettext_lazy("Next step")
    parameter_name = "step"

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        return [(stage.name, words.step_name(stage.name)) for stage in STAGES]

    def meaning(self, chosen: str) -> Selection:
        return Selection(steps=(chosen,))


class OwnerFilter(ChoiceFilter):
    title = gettext_lazy("Owner")
    parameter_name = "owner"
    SHOWN = 50
    """So many names stand in the filter; the others are reached by the name in a row."""

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, _StrOrPromise]]:
        owners = User.objects.filter(Exists(AudioRecord.objects.filter(owner=OuterRef("pk")))).order_by("username")
        shown = list(owners.values_list("pk", "username")[: self.SHOWN])
        chosen = self.value() or ""
        if _is_id(chosen) and int(chosen) not in dict(shown):
            shown += User.objects.filter(pk=int(chosen)).values_list("pk", "username")
        return [(str(pk), name) for pk, name in shown]

    def meaning(self, chosen: str) -> Selection:
        return Selection(owner_id=int(chosen))

    def has_output(self) -> bool:
        return True


class ProviderFilter(ChoiceFilter):
    title = gettext_lazy("Provider")
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, _StrOrPromise]]:
        """Those that can be configured by a name, and the one that is asked for: who came by a link from elsewhere is shown what it says."""
        names = {*registry.BUILT_IN, settings.TRANSCRIBER.recognition.provider}
        chosen = self.value()
        return [(name, name) for name in sorted(names | ({chosen} if chosen else set()))]

    def meaning(self, chosen: str) -> Selection:
        return Selection(provider=chosen)


class CreatedFilter(ChoiceFilter):
    title = gettext_lazy("Created")
    parameter_name = "created"

    def options(self) -> list[tuple[str, _StrOrPromise]]:
        return [("1", _("Past 24 hours")), ("7", _("Past 7 days")), ("30", _("Past 30 days"))]

    def meaning(self, chosen: str) -> Selection:
        return Selection(created_from=timezone.now() - timedelta(days=int(chosen)))


class DayInput(forms.DateInput):
    input_type = "date"


class DayFilter(Means, TextFilter):  # type: ignore[misc]  # unfold ships no types
    """A day by the viewer's clock, as the browser's own control gives it: `2026-01-31`."""

    AT_END: ClassVar[bool]

    def day(self) -> datetime | None:
        """Its first moment, or that of the day after it."""
        try:
            found = parse_date(self.value() or "")
            if found and not 1971 <= found.year <= 2999:  # no day on which anything was sent
                return None
            return timezone.make_aware(datetime.combine(found, time()) + timedelta(days=1 if self.AT_END else 0)) if found else None
        except ValueError:
            return None

    def chip(self) -> str:
        return date_format(parse_date(self.value()), "DATE_FORMAT") if self.day() else ""  # type: ignore[arg-type]  # day() has parsed it

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        widget = DayInput(format="%Y-%m-%d", attrs=UnfoldAdminTextInputWidget().attrs)
        data = {self.parameter_name: self.value() if self.day() else ""}
        yield {"form": Chosen(name=self.parameter_name, label=self.title, data=data, field=forms.CharField(widget=widget))}


class CreatedFromFilter(DayFilter):
    title = gettext_lazy("Created from")
    parameter_name = "created_from"
    AT_END = False

    def selection(self) -> Selection:
        return Selection(created_from=self.day())


class CreatedToFilter(DayFilter):
    title = gettext_lazy("Created to")
    parameter_name = "created_to"
    AT_END = True

    def selection(self) -> Selection:
        return Selection(created_before=self.day())


class ErrorFilter(Means, TextFilter):  # type: ignore[misc]  # unfold ships no types
    title = gettext_lazy("Error")
    parameter_name = "error"

    def chip(self) -> str:
        return (self.value() or "").strip()

    def selection(self) -> Selection:
        return Selection(error=self.chip())

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        widget = UnfoldAdminTextInputWidget(attrs={"placeholder": _("A part of the text, or the code")})
        data = {self.parameter_name: self.chip()}
        yield {"form": Chosen(name=self.parameter_name, label=self.title, data=data, field=forms.CharField(widget=widget))}


FILTERS = (
    StateFilter,
    HaltedFilter,
    ReasonFilter,
    WorkFilter,
    StepFilter,
    OwnerFilter,
    ProviderFilter,
    ErrorFilter,
    CreatedFilter,
    CreatedFromFilter,
    CreatedToFilter,
)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
