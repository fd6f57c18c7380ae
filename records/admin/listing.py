"""The list of records, made so that a million rows cost no more than a thousand."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from unfold.views import ChangeList

from recognition import registry
from recognition.models import Recognition
from records.admin import words
from records.admin.filters import FILTERS, Means
from records.models import AudioRecord
from records.operations import selection
from records.overview import NEAR, AtLeast
from records.pipeline.dispatch import configured_rules
from records.pipeline.stage import Work
from records.pipeline.stages import STAGES
from records.sentences import translated
from records.states import FINAL, HaltReason, State

COLUMNS = (
    "title",
    "language",
    "owner__username",
    "state",
    "state_entered_at",
    "work_started_at",
    "halted_at",
    "halt_reason",
    "error_code",
    "error_text",
    "acquisition_id",
    "delay_time",
    "attempts",
    "progress",
    "created",
    "original_file__duration_ms",
    "normalized_file__duration_ms",
    "structure__language",
)
"""All that a row of the list shows."""


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # no generic at run time
    """Counts up to CAP and no further. What lies beyond is found by filters and search, not by turning pages."""

    CAP = 10_000

    @cached_property
    def first(self) -> list[AudioRecord]:
        """The first page and one record more, where there is one."""
        return list(self.object_list[: self.per_page + 1])

    @cached_property
    def count(self) -> int:
        if len(self.first) <= self.per_page:
            return len(self.first)
        rows: QuerySet[AudioRecord] = self.object_list  # type: ignore[assignment]
        # Without its order it need not be sorted, to be counted up to the cap; only a provider's is found by its order.
        if "recognition__record_id" not in str(rows.query.order_by):
            rows = rows.order_by()
        found = rows.values("pk")[: self.CAP + 1].count()
        return AtLeast(self.CAP) if found > self.CAP else found

    def validate_number(self, number: Any) -> int:
        """The nearest page that there is: an act may have emptied the one that it leads back to."""
        return max(1, min(int(number), self.num_pages))


class Chip(NamedTuple):
    """A filter that is applied, and the address of the list without it."""

    title: str
    value: str
    without: str


class Order(NamedTuple):
    title: str
    address: str
    is_current: bool


class Page(NamedTuple):
    title: str
    address: str
    is_current: bool


class RecordList(ChangeList):  # type: ignore[misc]  # unfold ships no types
    ORDERS = {"newest": ["-id"], "oldest": ["id"], "longest": ["state_entered_at", "id"]}
    """The first is the usual. Each goes along an index; the last one only among what is unfinished."""

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        self.may_act = self.model_admin.has_change_permission(request)
        self.title = _("Records")
        self.way_back = urlencode({"_changelist_filters": request.GET.urlencode()})
        """For an act on one record: it leads back to this list."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str | None] | None = None) -> QuerySet[AudioRecord]:
        records: QuerySet[AudioRecord] = super().get_queryset(request, exclude_parameters)
        if any("\0" in value for values in self.filter_params.values() for value in values):
            return records.none()  # no text has one, and PostgreSQL refuses to look for it
        return records.only(*COLUMNS)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.page_num: int = self.paginator.validate_number(self.page_num)
        self.full_result_count = self.result_count  # the head of the page would offer to show all
        if not self.multi_page or (self.page_num == 1 and not self.show_all):
            self.result_list = self.paginator.first[: self.list_per_page]  # read already, to count it

    # ---- order ------------------------------------------------------------------------------------------------------------------

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[AudioRecord]) -> list[str]:
        ordering = self.ORDERS[self.order]
        if any(spec.selection().provider for spec in self.filter_specs):
            # The same order; but as that of the index by which a provider's recognitions are found.
            return [column.replace("id", "recognition__record_id") for column in ordering]
        return ordering

    def get_ordering_field_columns(self) -> dict[int, str]:
        return {}

    @cached_property
    def order(self) -> str:
        asked = self.params.get("o", "")
        possible = [order for order in self.ORDERS if order != "longest" or self.is_bounded]
        return asked if asked in possible else "newest"

    @property
    def is_bounded(self) -> bool:
        return any(spec.selection().is_bounded for spec in self.filter_specs)

    @property
    def orders(self) -> list[Order]:
        titles = {"newest": _("Newest first"), "oldest": _("Oldest first")}
        if self.is_bounded:
            titles["longest"] = _("Longest in its state first")
        return [
            Order(title, self.get_query_string({"o": None if order == "newest" else order, "p": None}), order == self.order)
            for order, title in titles.items()
        ]

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What stays where other filters are applied: the search and the order, and not the page."""
        return [(name, self.params[name]) for name in ("q", "o") if self.params.get(name)]

    # ---- what is shown ----------------------------------------------------------------------------------------------------------

    @property
    def chips(self) -> list[Chip]:
        chips = [Chip(_("Search"), self.query, self.get_query_string({"q": None}))] if self.query else []
        specs: Sequence[Means] = self.filter_specs
        return chips + [
            Chip(str(spec.title), spec.told(), self.get_query_string({spec.parameter_name: None})) for spec in specs if spec.told()
        ]

    @property
    def pages(self) -> list[Page]:
        """The numbers that lead somewhere, and gaps between them; empty where all is on one page."""
        if not self.multi_page:
            return []
        numbers = self.paginator.get_elided_page_range(self.page_num, on_each_side=2, on_ends=1)
        return [
            Page(str(number), self.get_query_string({"p": number}) if isinstance(number, int) else "", number == self.page_num)
            for number in numbers
        ]

    @property
    def earlier(self) -> str:
        return self.get_query_string({"p": self.page_num - 1}) if self.page_num > 1 else ""

    @property
    def later(self) -> str:
        return self.get_query_string({"p": self.page_num + 1}) if self.multi_page and self.page_num < self.paginator.num_pages else ""

    @property
    def total(self) -> str:
        """`240 records`, `10,000+ records`."""
        return ngettext("%(number)s record", "%(number)s records", self.result_count) % {"number": self.number}

    @property
    def number(self) -> str:
        return str(self.result_count) if isinstance(self.result_count, AtLeast) else number_format(self.result_count, force_grouping=True)


def search(records: QuerySet[AudioRecord], term: str) -> QuerySet[AudioRecord]:
    """The record of that id, or of that operation of a provider, or those with the term in their title or error."""
    term = term.strip()
    if not term:
        return records
    try:
        return records.filter(pk=uuid.UUID(term))
    except ValueError:
        pass
    names = {*registry.BUILT_IN, settings.TRANSCRIBER.recognition.provider}
    found = Recognition.objects.filter(provider__in=names, external_id=term).exclude(external_id="").values_list("record", flat=True)
    if ids := list(found):
        return records.filter(pk__in=ids)
    return records.filter(selection.contains("title", term) | selection.contains("error_text", term) | Q(error_code=term.lower()))


class RecordListing(ModelAdmin):  # type: ignore[type-arg]  # no generic at run time
    """Columns, filters and search."""

    list_display = ("name", "of_owner", "length", "standing", "age", "next_try")
    list_display_links = ("name",)
    list_select_related = ("owner", "original_file", "normalized_file", "structure")
    list_filter = FILTERS
    list_filter_submit = True
    list_fullwidth = True
    list_per_page = 50
    list_max_show_all = 0
    search_fields = ("title", "error_text")
    search_help_text = gettext_lazy("Id, operation, title or error")
    sortable_by = ()
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

    @admin.display(description=gettext_lazy("Record"))
    def name(self, record: AudioRecord) -> SafeString:
        created = timezone.localtime(record.created)
        return format_html(
            '<span class="name{}">{}</span><time class="quiet" datetime="{}">{}</time>',
            "" if record.title else " is-id",
            record,
            created.isoformat(timespec="seconds"),
            date_format(created, "SHORT_DATETIME_FORMAT"),
        )

    @admin.display(description=gettext_lazy("Owner"))
    def of_owner(self, record: AudioRecord) -> SafeString:
        return format_html('<a href="?owner={}">{}</a>', record.owner_id, record.owner.get_username())

    @admin.display(description=gettext_lazy("Length"), empty_value="")
    def length(self, record: AudioRecord) -> SafeString:
        """How long it is, and in which language: that which was heard, else the one that was asked for."""
        files = (record.original_file, record.normalized_file)
        duration_ms = next((file.duration_ms for file in files if file and file.duration_ms is not None), None)
        language = (record.structure.language if record.structure else "") or record.language
        return format_html(
            '<span>{}</span><span class="quiet" title="{}">{}</span>',
            "—" if duration_ms is None else words.clock(duration_ms),
            _("Language"),
            language,
        )

    @admin.display(description=gettext_lazy("State"))
    def standing(self, record: AudioRecord) -> SafeString:
        """The state, why it is halted, and the code of that or of the last failure; the sentence is told by a pointer that rests on it, and on
        the record's page."""
        shown = format_html('<span class="badge state-{}">{}</span>', record.state, State(record.state).label)
        if record.halted_at:
            badge = ' <span class="badge halted {}"><span class="sr-only">{}</span> {}</span>'
            shown += format_html(badge, record.halt_reason, _("Halted:"), HaltReason(record.halt_reason).label)
        if not record.error_code:
            return shown
        return format_html(
            '<span>{}</span><span class="why quiet" title="{}">{}</span>', shown, translated(record.error_text), record.error_code
        )

    @admin.display(description=gettext_lazy("In state"))
    def age(self, record: AudioRecord) -> SafeString:
        now = timezone.now()
        share = share_of_limit(record, now=now)
        text = words.span(now - record.state_entered_at)
        if share < NEAR:
            return format_html('<span class="age">{}</span>', text)
        limit = words.span(limit_of(record))
        told = _("past its limit of %(limit)s") if share > 1 else _("%(percent)d%% of its limit of %(limit)s")
        return format_html(
            '<span class="age {}">{}<small>{}</small></span>',
            "past" if share > 1 else "near",
            text,
            told % {"limit": limit, "percent": int(share * 100)},
        )

    @admin.display(description=gettext_lazy("Next try"))
    def next_try(self, record: AudioRecord) -> SafeString:
        """When it is worked on again, how often that failed, and how far it is where it is at work."""
        now = timezone.now()
        told, most = words.next_try(record, now=now), settings.TRANSCRIBER.pipeline.max_attempts
        failed = ""
        if record.attempts:
            failed = ngettext("%(number)d of %(most)d attempt failed", "%(number)d of %(most)d attempts failed", most) % {
                "number": record.attempts,
                "most": most,
            }
        if not record.acquisition_id or record.delay_time <= now:
            return format_html('<span>{}</span><span class="quiet">{}</span>', told, failed)
        percent = round(record.progress * 100)
        return format_html(
            '<span>{}</span><progress value="{}" max="100" aria-label="{}"></progress><span class="quiet">{}</span>',
            _("at work, %(percent)d%%") % {"percent": percent},
            percent,
            _("Progress"),
            failed,
        )


def limit_of(record: AudioRecord) -> timedelta:
    """How long the record may be worked on in its state, as it is judged when a step ends. Not of the final state."""
    work = STAGES[record.state].work
    # Postponed for a reason, and no failure: it waits for its provider, whatever the stage.
    if record.error_code and not record.attempts and not record.acquisition_id:
        work = Work.FOREIGN
    return configured_rules().limits[work]


def share_of_limit(record: AudioRecord, *, now: datetime) -> float:
    """1 where the limit is reached. It counts from the first acquisition in the state, and stands while the record is halted: 0."""
    if record.state == FINAL or record.halted_at or record.work_started_at is None:
        return 0.0
    return (now - record.work_started_at) / limit_of(record)
