"""The list of records, made so that a million rows cost no more than a thousand."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import BooleanField, Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.views import ChangeList

from records.admin import words
from records.models import AudioRecord
from records.states import FINAL, HaltReason, State

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

COLUMNS = (
    "title",
    "owner__username",
    "state",
    "state_entered_at",
    "halted_at",
    "halt_reason",
    "error_code",
    "error_text",
    "acquisition_id",
    "delay_time",
    "attempts",
    "progress",
    "created",
)
"""All that a row of the list shows."""


class AtLeast(int):
    """A count that was given up at its value; says so where it is read."""

    def __str__(self) -> str:
        return f"{int(self)}+"


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # no generic at run time
    """Counts up to CAP and no further. What lies beyond is found by filters and search, not by turning pages."""

    CAP = 10_000

    @cached_property
    def count(self) -> int:
        rows: QuerySet[AudioRecord] = self.object_list  # type: ignore[assignment]
        found = rows.order_by().values("pk")[: self.CAP + 1].count()
        return AtLeast(self.CAP) if found > self.CAP else found


class RecordList(ChangeList):  # type: ignore[misc]  # unfold ships no types
    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str | None] | None = None) -> QuerySet[AudioRecord]:
        records: QuerySet[AudioRecord] = super().get_queryset(request, exclude_parameters)
        return records.only(*COLUMNS)


def search(records: QuerySet[AudioRecord], term: str) -> QuerySet[AudioRecord]:
    """The record of that id, or those with the term in their title or error."""
    term = term.strip()
    if not term:
        return records
    try:
        return records.filter(pk=uuid.UUID(term))
    except ValueError:
        pass
    # SQLite's LIKE knows upper and lower case of ASCII alone; PostgreSQL goes by the locale of the database.
    lookup, value = ("iregex", re.escape(term)) if connection.vendor == "sqlite" and not term.isascii() else ("icontains", term)
    return records.filter(Q(**{f"title__{lookup}": value}) | Q(**{f"error_text__{lookup}": value}) | Q(error_code=term.lower()))


class ChoiceFilter(SimpleListFilter):
    """A filter with fixed choices; a value that is none of them is passed over."""

    choices_shown: tuple[tuple[str, str], ...] = ()

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, _StrOrPromise]]:
        return list(self.choices_shown)

    def chosen(self) -> str | None:
        value = self.value()
        return value if value in dict(self.choices_shown) else None


def _named(values: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((value, value) for value in values)


class StateFilter(ChoiceFilter):
    title = "state"
    parameter_name = "state"
    choices_shown = _named(["unfinished", *State.values])

    def queryset(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
        chosen = self.chosen()
        if chosen is None:
            return queryset
        if chosen == FINAL:
            return queryset.filter(state=FINAL)
        # The predicate of the index audio_records_unfinished, word for word: SQLite uses the index for nothing less. The column bears no
        # table's name, since that is another one once the query stands within a query.
        unfinished = queryset.filter(RawSQL(f"NOT (state = '{FINAL.value}')", [], output_field=BooleanField()))  # noqa: S611 - a constant
        return unfinished if chosen == "unfinished" else unfinished.filter(state=chosen)


class HaltedFilter(ChoiceFilter):
    title = "halted"
    parameter_name = "halted"
    choices_shown = _named(["yes", "no"])

    def queryset(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
        match self.chosen():
            case "yes":  # by the reasons the index audio_records_halted is searched
                return queryset.filter(halted_at__isnull=False, halt_reason__in=HaltReason.values)
            case "no":
                return queryset.filter(halted_at__isnull=True)
        return queryset


class ReasonFilter(ChoiceFilter):
    title = "halt reason"
    parameter_name = "reason"
    choices_shown = _named(HaltReason.values)

    def queryset(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
        chosen = self.chosen()
        return queryset if chosen is None else queryset.filter(halted_at__isnull=False, halt_reason=chosen)


class CreatedFilter(ChoiceFilter):
    title = "created"
    parameter_name = "created"
    choices_shown = (("1", "past 24 hours"), ("7", "past 7 days"), ("30", "past 30 days"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
        chosen = self.chosen()
        if chosen is None:
            return queryset
        since = timezone.now() - timedelta(days=int(chosen))
        # Ids are in order of time, and theirs is the index. The day is for clocks that were set back.
        first = uuid.UUID(int=int((since - timedelta(days=1)).timestamp() * 1000) << 80)
        return queryset.filter(pk__gte=first, created__gte=since)


class OwnerFilter(SimpleListFilter):
    title = "owner"
    parameter_name = "owner"
    SHOWN = 50
    """So many names stand beside the list; the others are reached by the name in a row."""

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, _StrOrPromise]]:
        owners = User.objects.filter(Exists(AudioRecord.objects.filter(owner=OuterRef("pk")))).order_by("username")
        shown = list(owners.values_list("pk", "username")[: self.SHOWN])
        chosen = self.value() or ""
        if chosen.isdecimal() and int(chosen) not in dict(shown):
            shown += User.objects.filter(pk=int(chosen)).values_list("pk", "username")
        return [(str(pk), name) for pk, name in shown]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
        chosen = self.value() or ""
        return queryset.filter(owner=int(chosen)) if chosen.isdecimal() else queryset


FILTERS = (StateFilter, HaltedFilter, ReasonFilter, CreatedFilter, OwnerFilter)


class RecordListing(ModelAdmin):  # type: ignore[type-arg]  # no generic at run time
    """Columns, filters and search."""

    list_display = ("name", "of_owner", "state_badge", "halt_badge", "age", "attempts", "next_try", "progress_bar", "created_at")
    list_display_links = ("name",)
    list_select_related = ("owner",)
    list_filter = FILTERS
    list_per_page = 50
    search_fields = ("title", "error_text")
    search_help_text = "The id, or a part of the title or of the error."
    sortable_by = ("age", "created_at")
    ordering = ("-id",)
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecordList]:
        return RecordList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AudioRecord], search_term: str
    ) -> tuple[QuerySet[AudioRecord], bool]:
        return search(queryset, search_term), False

    @admin.display(description="recording")
    def name(self, record: AudioRecord) -> str:
        return str(record)

    @admin.display(description="owner")
    def of_owner(self, record: AudioRecord) -> SafeString:
        return format_html('<a href="?owner={}">{}</a>', record.owner_id, record.owner.get_username())

    @admin.display(description="state")
    def state_badge(self, record: AudioRecord) -> SafeString:
        return format_html('<span class="badge state-{}">{}</span>', record.state, record.state)

    @admin.display(description="halt", empty_value="")
    def halt_badge(self, record: AudioRecord) -> SafeString | None:
        if not record.halted_at:
            return None
        return format_html(
            '<span class="badge halted" title="{}">{}</span> <span class="quiet">{}</span>',
            record.error_text,
            record.halt_reason,
            record.error_code,
        )

    @admin.display(description="age in state", ordering="-state_entered_at")
    def age(self, record: AudioRecord) -> str:
        return words.span(timezone.now() - record.state_entered_at)

    @admin.display(description="next try")
    def next_try(self, record: AudioRecord) -> str:
        return words.next_try(record, now=timezone.now())

    @admin.display(description="progress", empty_value="")
    def progress_bar(self, record: AudioRecord) -> SafeString | None:
        if not record.acquisition_id:  # nothing is under way
            return None
        percent = round(record.progress * 100)
        return format_html('<progress value="{}" max="100" aria-label="{} %"></progress>', percent, percent)

    @admin.display(description="created", ordering="id")
    def created_at(self, record: AudioRecord) -> str:
        return f"{timezone.localtime(record.created):%Y-%m-%d %H:%M}"
