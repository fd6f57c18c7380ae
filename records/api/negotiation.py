"""What is spoken: JSON, both ways. Recordings in and transcripts, sound and errors out have their own rules."""

from __future__ import annotations

from collections.abc import Iterable
from json import JSONDecodeError
from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class AnswersJson(DefaultContentNegotiation):
    """Answers JSON whatever the Accept header says: an error, too, is JSON where a subtitle file was asked for."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, str(renderer.media_type)


class Json(JSONParser):
    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError(_("The request's body is JSON that is nested too deeply.")) from None
        except ParseError as error:
            place = error.__context__
            if isinstance(place, JSONDecodeError):
                where = {"line": place.lineno, "column": place.colno}
                raise ParseError(_("The request's body is no JSON from line %(line)d, column %(column)d on.") % where) from None
            raise ParseError(_("The request's body is no JSON.")) from None
