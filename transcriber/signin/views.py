"""To the provider and back. Whatever goes wrong on the way ends at the login page, with a sentence that says what can be done about it."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.conf import settings
from django.contrib import auth, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from mozilla_django_oidc.views import OIDCAuthenticationRequestView

from transcriber.signin.people import Refused
from transcriber.signin.provider import NotUnderstood, ProviderAway, ProviderBackend, is_configured, setting

logger = logging.getLogger(__name__)

BACKEND = "transcriber.signin.provider.ProviderBackend"
RETURN_WITHIN_S = 15 * 60


class _Request(OIDCAuthenticationRequestView):  # type: ignore[misc]  # the library ships no types
    """Remembers state, nonce, verifier and the page that was wanted (if it is ours) in the session, and leads to the provider."""

    get_settings = staticmethod(setting)


@require_GET
@never_cache
def begin(request: HttpRequest) -> HttpResponse:
    """Off to the provider; `next` is where its visitor wants to be afterwards."""
    if not is_configured():
        raise Http404
    try:
        answer: HttpResponse = _Request.as_view()(request)
    except ProviderAway as error:
        return _failed(request, "away", str(error))
    except NotUnderstood as error:
        return _failed(request, "not_understood", str(error))
    if not request.user.is_authenticated:  # anybody may leave such a row; `leftovers.keep` lets it last once they are somebody
        request.session.set_expiry(RETURN_WITHIN_S)
    return answer


@require_GET
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Back from it, with a code that is good for one sign-in, or with an error."""
    if not is_configured():
        raise Http404
    begun = _take_begun(request)
    if begun is None:
        return _failed(request, "stale")
    if "code" not in request.GET:
        return _failed(request, "denied" if request.GET.get("error") == "access_denied" else "not_understood", "it answered with an error")
    try:
        user = ProviderBackend().authenticate(request, nonce=begun["nonce"], code_verifier=begun["code_verifier"])
    except ProviderAway as error:
        return _failed(request, "away", str(error))
    except NotUnderstood as error:
        return _failed(request, "not_understood", str(error))
    except Refused as error:
        return _failed(request, error.code)
    if user is None:
        return _failed(request, "not_understood", "its token was not accepted")
    wanted = request.session.get("oidc_login_next")
    # Not through `authenticate`: a provider's refusal is no guessed password, and must slow nobody down.
    auth.login(request, user, backend=BACKEND)
    return HttpResponseRedirect(wanted or resolve_url("admin:index"))


def _take_begun(request: HttpRequest) -> dict[str, Any] | None:
    """What was remembered under the state that came back. It is good for one use, by the browser that began, and for a while."""
    begun: dict[str, Any] = request.session.get("oidc_states") or {}
    found: dict[str, Any] | None = begun.pop(request.GET.get("state", ""), None)
    if found is None:
        return None
    request.session["oidc_states"] = begun
    request.session.save()  # now: the provider is asked next, and meanwhile the same state may come a second time
    return found if time.time() - found["added_on"] < RETURN_WITHIN_S else None


def _failed(request: HttpRequest, code: str, detail: str = "") -> HttpResponse:
    """Back to the login page. The log gets the code and words of ours, nothing that the provider or its visitor said."""
    logger.warning("sign-in by the provider failed: %s%s", code, f" ({detail})" if detail else "")
    messages.error(request, _sentence(code))
    wanted = request.session.get("oidc_login_next") or ""
    return HttpResponseRedirect(reverse("admin:login") + (f"?{urlencode({'next': wanted})}" if wanted else ""))


def _sentence(code: str) -> str:
    provider = settings.TRANSCRIBER.signin.provider_name
    sentences = {
        "away": _("%(provider)s does not answer at the moment. Try again in a while."),
        "denied": _("You were not signed in: %(provider)s refused it, or you called it off."),
        "stale": _("This sign-in was begun in another browser, or too long ago. Please begin again."),
        "not_understood": _("The answer of %(provider)s could not be trusted, so you were not signed in. The service's log says more."),
        "no_right": _("%(provider)s knows you, but you are not among those who may sign in here. Ask whoever runs this service."),
        "no_account": _("%(provider)s knows you, but you have no account here. Ask whoever runs this service."),
        "inactive": _("Your account here is switched off. Ask whoever runs this service."),
    }
    return sentences[code] % {"provider": provider}
