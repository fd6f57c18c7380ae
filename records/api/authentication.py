"""Who asks. Both ways decide by the headers alone, so that no body is read for somebody who may not send one."""

from __future__ import annotations

import copy
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _
from drf_spectacular.authentication import SessionScheme
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from rest_framework import authentication, exceptions
from rest_framework.request import Request


class TokenAuthentication(KnoxTokenAuthentication):  # type: ignore[misc]  # knox ships no types
    """`Authorization: Token …`, as made by `manage.py create_token`."""

    def authenticate_credentials(self, token: bytes) -> Any:
        if not token.isalnum():  # ours are; knox fails on bytes that are no text
            raise exceptions.AuthenticationFailed(_("Invalid token."))
        return super().authenticate_credentials(token)


class SessionAuthentication(authentication.SessionAuthentication):
    """Somebody who is logged in to the admin; what changes anything needs the `X-CSRFToken` header.

    A token in a form field is not looked for: that would read the whole form before anything else was checked.
    """

    def enforce_csrf(self, request: Request) -> None:
        headers_alone = copy.copy(request._request)
        headers_alone.POST = QueryDict()
        try:
            super().enforce_csrf(headers_alone)  # type: ignore[arg-type]
        except exceptions.PermissionDenied as error:
            raise exceptions.PermissionDenied(_("The X-CSRFToken header is missing, or is not the one of this session.")) from error


class TokenScheme(KnoxTokenScheme):  # type: ignore[no-untyped-call]
    target_class = "records.api.authentication.TokenAuthentication"
    name = "token"


class CookieScheme(SessionScheme):  # type: ignore[no-untyped-call]
    target_class = "records.api.authentication.SessionAuthentication"
    name = "session"
