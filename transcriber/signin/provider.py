"""The OpenID Connect provider: what it says of itself, and the way from the code that a visitor brings back to their claims.

The protocol is mozilla-django-oidc's. Added to it are the addresses, read from the provider when somebody first signs in and never at the start,
and the checks that it leaves out: issuer, audience and lifetime of the token, and that both answers speak of the same person.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.utils import import_from_settings

from transcriber.signin import people

logger = logging.getLogger(__name__)

TIMEOUT_S = (5, 10)
"""To connect, and between two bytes of an answer."""
KNOWN_FOR_S = 3600
"""How long what a provider says of itself is taken for true."""
AWAY_FOR_S = 5
"""How long it is not asked again after it failed to say something of itself: each time may hold a thread of the web server for `TIMEOUT_S`."""
PATIENCE_S = 2
"""For which others wait while one asks."""
SKEW_S = 60
"""By which its clock may differ from ours."""
LONGEST_SUBJECT = 255
"""By OpenID Connect Core, section 2."""
ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
"""Signatures with a key of the provider's. Those made with the shared secret are not taken: a key that is public could be passed off as it."""


class ProviderAway(Exception):
    """It can't be reached, or answers with an error."""


class NotUnderstood(Exception):
    """It answered, but what it said can't be relied upon. The message is for the log: it holds no word of the answer."""


@dataclass(frozen=True)
class Provider:
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str
    jwks_uri: str
    algorithms: tuple[str, ...]
    basic: bool
    """The secret goes into a header; else into the form."""


_known: dict[str, tuple[float, Provider | ProviderAway | NotUnderstood]] = {}
"""By address: until when, and what it said or how it failed."""
_asking = threading.Lock()


def is_configured() -> bool:
    return bool(settings.TRANSCRIBER.signin.provider)


def discover() -> Provider:
    """What the configured provider says of itself. Raises ProviderAway, NotUnderstood."""
    address = settings.TRANSCRIBER.signin.provider
    found = _remembered(address)
    if found is None:
        if not _asking.acquire(timeout=PATIENCE_S):
            raise ProviderAway("somebody else is still waiting for it")
        try:
            found = _remembered(address) or _ask(address)
        finally:
            _asking.release()
    if isinstance(found, Provider):
        return found
    raise type(found)(*found.args)


def _remembered(address: str) -> Provider | ProviderAway | NotUnderstood | None:
    until, found = _known.get(address, (0.0, None))
    return found if time.monotonic() < until else None


def _ask(address: str) -> Provider | ProviderAway | NotUnderstood:
    found: Provider | ProviderAway | NotUnderstood
    try:
        found = _described(address, _document(f"{address}/.well-known/openid-configuration"))
    except (ProviderAway, NotUnderstood) as error:
        found = type(error)(*error.args)  # without the frames that the one raised holds on to
    _known[address] = (time.monotonic() + (KNOWN_FOR_S if isinstance(found, Provider) else AWAY_FOR_S), found)
    return found


def forget() -> None:
    _known.clear()


def _document(address: str) -> Mapping[str, Any]:
    try:
        answer = requests.get(address, timeout=TIMEOUT_S)
        answer.raise_for_status()
        document = answer.json()
    except requests.JSONDecodeError as error:
        raise NotUnderstood("its description is no JSON") from error
    except requests.RequestException as error:
        raise ProviderAway(type(error).__name__) from error
    if not isinstance(document, dict):
        raise NotUnderstood("its description is no object")
    return document


def _described(address: str, document: Mapping[str, Any]) -> Provider:
    issuer = document.get("issuer")
    if not isinstance(issuer, str) or issuer.rstrip("/") != address:
        raise NotUnderstood("its description is another provider's")
    secure = address.startswith("https://")

    def endpoint(name: str) -> str:
        url = document.get(name)
        if not isinstance(url, str) or not url.startswith("https://" if secure else ("http://", "https://")):
            raise NotUnderstood(f"its description has no usable {name}")
        return url

    methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return Provider(
        issuer=issuer,
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=endpoint("token_endpoint"),
        userinfo_endpoint=endpoint("userinfo_endpoint") if document.get("userinfo_endpoint") else "",
        jwks_uri=endpoint("jwks_uri"),
        algorithms=tuple(sorted(ALGORITHMS & set(document.get("id_token_signing_alg_values_supported", ["RS256"])))),
        basic="client_secret_post" not in methods,
    )


def setting(name: str, *default: Any) -> Any:
    """What the library asks for by the names of its settings. Raises ProviderAway, NotUnderstood."""
    config, provider = settings.TRANSCRIBER.signin, discover()
    ours = {
        "OIDC_OP_AUTHORIZATION_ENDPOINT": provider.authorization_endpoint,
        "OIDC_OP_TOKEN_ENDPOINT": provider.token_endpoint,
        "OIDC_OP_USER_ENDPOINT": provider.userinfo_endpoint,
        "OIDC_OP_JWKS_ENDPOINT": provider.jwks_uri,
        "OIDC_RP_CLIENT_ID": config.client_id,
        "OIDC_RP_CLIENT_SECRET": config.client_secret,
        "OIDC_RP_SCOPES": " ".join(config.scopes),
        "OIDC_RP_SIGN_ALGO": "RS256",  # a key of the provider's; which algorithm exactly is checked below
        "OIDC_USE_PKCE": True,
        "OIDC_TOKEN_USE_BASIC_AUTH": provider.basic,
        "OIDC_TIMEOUT": TIMEOUT_S,
        "OIDC_AUTHENTICATION_CALLBACK_URL": "signin:callback",
    }
    return ours[name] if name in ours else import_from_settings(name, *default)


class ProviderBackend(OIDCAuthenticationBackend):  # type: ignore[misc]  # the library ships no types
    """From the code in the address to a user. Raises ProviderAway, NotUnderstood and `people.Refused`."""

    get_settings = staticmethod(setting)

    def __init__(self) -> None:
        # Django makes a backend for every request of somebody who is signed in; the provider is asked when somebody comes, and not before.
        self.UserModel = get_user_model()

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        if request is None or "code_verifier" not in credentials:  # a password is no business of ours
            return None
        try:
            super().__init__()
            user: User | None = super().authenticate(request, **credentials)
        except requests.JSONDecodeError as error:
            raise NotUnderstood("an answer is no JSON") from error
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code < 500:
                raise NotUnderstood(f"it answered {error.response.status_code}") from error
            raise ProviderAway(type(error).__name__) from error
        except requests.RequestException as error:
            raise ProviderAway(type(error).__name__) from error
        except (SuspiciousOperation, jwt.PyJWTError) as error:
            raise NotUnderstood(f"its token is not to be trusted ({type(error).__name__})") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotUnderstood(f"its answer has another shape ({type(error).__name__})") from error
        return user

    def get_user(self, user_id: Any) -> Any:
        # The library's own would let in those who were switched off since.
        return ModelBackend.get_user(self, user_id) if is_configured() else None

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """The key of a token. The library wants to be told its id, which a provider with one key need not do."""
        header = jwt.get_unverified_header(token)
        keys = [
            key
            for key in _document(self.OIDC_OP_JWKS_ENDPOINT)["keys"]
            if key.get("alg", header["alg"]) == header["alg"]
            and key.get("use", "sig") == "sig"
            and header.get("kid") in (None, key.get("kid"))
        ]
        if len(keys) != 1:
            raise NotUnderstood(f"{len(keys)} of its keys fit its token")
        return jwt.PyJWK(keys[0], header["alg"])

    def get_payload_data(self, token: str, key: Any) -> Any:
        provider = discover()
        return jwt.decode(
            token,
            key,
            algorithms=list(provider.algorithms),
            audience=settings.TRANSCRIBER.signin.client_id,
            issuer=provider.issuer,
            leeway=SKEW_S,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )

    def get_or_create_user(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> User:
        claims = dict(payload)
        if not 0 < len(claims["sub"]) <= LONGEST_SUBJECT:
            raise NotUnderstood("its token names nobody")
        if self.OIDC_OP_USER_ENDPOINT:
            told = self.get_userinfo(access_token, id_token, payload)
            if told["sub"] != payload["sub"]:
                raise NotUnderstood("its answers speak of two people")
            claims |= {name: value for name, value in told.items() if name != "iss"}
        return people.admit(claims)
