"""Errors of one shape, whatever went wrong: {"type", "errors": [{"code", "detail", "attr"}]}."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from django.core import signals
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseServerError, JsonResponse, UnreadablePostError
from django.template import loader
from django.urls import resolve
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views import defaults
from drf_standardized_errors.handler import ExceptionHandler as StandardHandler
from rest_framework import exceptions, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from records.models import AudioRecord
from records.operations.intake import BadLanguage, Empty, IntakeRefused, KeyReused, NoSpace, StorageAway, TooLarge
from records.trouble import is_trouble

logger = logging.getLogger(__name__)

TRY_AGAIN_S = 30


class Refusal(exceptions.APIException):
    """An answer with a status, a code for programs and a sentence for people."""

    def __init__(self, status_code: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail, code)
        self.status_code = status_code
        self.headers = headers or {}


def conflict(code: str, detail: str, *, headers: Mapping[str, str] | None = None) -> Refusal:
    return Refusal(status.HTTP_409_CONFLICT, code, detail, headers=headers)


def away(code: str, detail: str) -> Refusal:
    """What we lean on does not answer: nothing was done, and it is worth trying again."""
    return Refusal(status.HTTP_503_SERVICE_UNAVAILABLE, code, detail, headers={"Retry-After": str(TRY_AGAIN_S)})


def invalid(attr: str, code: str, detail: str) -> exceptions.ValidationError:
    return exceptions.ValidationError({attr: [exceptions.ErrorDetail(detail, code)]})


TOO_LARGE = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
_STATUS = {
    TooLarge: TOO_LARGE,
    NoSpace: status.HTTP_507_INSUFFICIENT_STORAGE,
    KeyReused: status.HTTP_422_UNPROCESSABLE_ENTITY,
}
_FIELD = {Empty: "file", BadLanguage: "language"}


class ExceptionHandler(StandardHandler):
    def convert_known_exceptions(self, exc: Exception) -> Exception:
        match exc:
            case AudioRecord.DoesNotExist():
                return exceptions.NotFound()
            case IntakeRefused() if type(exc) in _FIELD:
                return invalid(_FIELD[type(exc)], exc.code, exc.message)
            case StorageAway():
                return away(exc.code, exc.message)
            case _ if is_trouble(exc):
                return away("database_unavailable", _("The database does not answer; try again later."))
            case IntakeRefused():
                return Refusal(_STATUS[type(exc)], exc.code, exc.message)
            case RequestDataTooBig():
                return Refusal(TOO_LARGE, "too_large", _("The request's body is larger than this call takes."))
            case SuspiciousOperation():
                return exceptions.ParseError()
            case UnreadablePostError():
                return Refusal(status.HTTP_400_BAD_REQUEST, "cut_off", _("The request's body ended early."))
        converted: Exception = super().convert_known_exceptions(exc)
        return converted

    def convert_unhandled_exceptions(self, exc: Exception) -> exceptions.APIException:
        return exc if isinstance(exc, exceptions.APIException) else exceptions.APIException(_("Server Error (500)"))

    def get_headers(self, exc: exceptions.APIException) -> dict[str, str]:
        return {**super().get_headers(exc), **getattr(exc, "headers", {})}

    def report_exception(self, exc: exceptions.APIException, response: Response) -> None:
        """Log what nobody foresaw by its place in the code: its message may hold anything, what somebody sent included."""
        if exc is self.exc or not status.is_server_error(exc.status_code) or isinstance(self.exc, IntakeRefused):
            return
        request = self.context["request"]
        signals.got_request_exception.send(sender=None, request=request._request if request else None)
        frames = "".join(traceback.format_tb(self.exc.__traceback__))
        logger.error("unexpected %s in %s\n%s", type(self.exc).__name__, type(self.context["view"]).__name__, frames)


class UnknownAddress(APIView):
    """What lies under /api/ and is nothing. Also keeps Django from redirecting a POST to the address with a slash, which would lose its body."""

    permission_classes = [AllowAny]
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        nearest = getattr(resolve(f"{request.path_info}/").func, "view_class", None)
        if nearest is UnknownAddress:
            raise exceptions.NotFound(_("There is nothing at this address."))
        raise exceptions.NotFound(_("There is nothing at this address. Did you mean the one with a slash at its end?"))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """What Django refuses before a view is asked, such as a host that is not allowed."""
    if not request.path.startswith("/api/"):
        return defaults.bad_request(request, exception)
    # It may have been refused before the language was looked at, and then the thread's is the one of its last request.
    with translation.override(translation.get_language_from_request(request)):
        return _answer(HttpResponseBadRequest.status_code, "client_error", "bad_request", _("The request can't be answered."))


def unavailable(request: HttpRequest) -> HttpResponse:
    """The database does not answer as it should."""
    if request.path.startswith("/api/"):
        with translation.override(translation.get_language_from_request(request)):
            answer: HttpResponse = _answer(503, "server_error", "database_unavailable", _("The database does not answer; try again later."))
    else:
        answer = HttpResponse(loader.render_to_string("503.html"), status=503)
    answer["Retry-After"] = str(TRY_AGAIN_S)
    return answer


def server_error(request: HttpRequest) -> HttpResponse:
    """What went wrong outside the views."""
    if is_trouble(sys.exc_info()[1]):
        return unavailable(request)
    if not request.path.startswith("/api/"):
        return defaults.server_error(request)
    with translation.override(translation.get_language_from_request(request)):
        return _answer(HttpResponseServerError.status_code, "server_error", "error", _("Server Error (500)"))


def _answer(status_code: int, kind: str, code: str, detail: str) -> JsonResponse:
    answer = JsonResponse({"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}, status=status_code)
    answer["Content-Language"] = translation.get_language() or ""
    patch_vary_headers(answer, ["Accept-Language"])
    return answer
