from __future__ import annotations

import re
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from rest_framework.exceptions import ErrorDetail, NotFound
from rest_framework.exceptions import ValidationError as Refused
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class CursorPages(CursorPagination):
    """Pages that stay right while rows are added: `results`, `next`, `previous`. The order is the view's `ordering`; ids are in order of time."""

    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200
    ordering = "-id"
    page_size_query_description = "Rows on a page, at most 200."

    def get_page_size(self, request: Request) -> int:
        asked = request.query_params.getlist("limit")
        if not asked:
            return self.page_size
        if len(asked) > 1 or not re.fullmatch("0*[1-9][0-9]{0,8}", asked[0], re.ASCII):
            raise Refused({"limit": [ErrorDetail(_("Send one whole number from 1 on."), "invalid")]})
        return min(int(asked[0]), self.max_page_size)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        parameters = super().get_schema_operation_parameters(view)
        return [
            {**one, "schema": {"type": "integer", "minimum": 1, "default": self.page_size}} if one["name"] == "limit" else one
            for one in parameters
        ]

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        return (getattr(view, "ordering", self.ordering),)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValidationError, ValueError):  # a cursor that leads to what is no id
            raise NotFound(self.invalid_cursor_message) from None
