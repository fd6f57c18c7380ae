from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class CursorPages(CursorPagination):
    """Pages that stay right while rows are added: `results`, `next`, `previous`. The order is the view's `ordering`; ids are in order of time."""

    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200
    ordering = "-id"
    page_size_query_description = "Rows on a page, at most 200."

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        return (getattr(view, "ordering", self.ordering),)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValidationError, ValueError):  # a cursor that leads to what is no id
            raise NotFound(self.invalid_cursor_message) from None
