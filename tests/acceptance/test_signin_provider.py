"""Signing in by OpenID Connect: a real provider in a process of its own, real HTTP all the way, and once a real service and a real browser."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.utils import timezone

from tests.acceptance.browser import PATIENCE, chromium, scrolls_sideways, violations, visitor
from tests.acceptance.conftest import MakeService
from tests.acceptance.service import wait_for
from tests.factories import make_user
from tests.fakes.openid_provider import OpenIDProvider
from transcriber.config import SignIn
from transcriber.signin import provider as provider_module
from transcriber.signin.models import Identity
from transcriber.signin.views import BACKEND, RETURN_WITHIN_S

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("openid_provider")]

LOGIN = "/admin/login/"
STAFF_ONLY = "/admin/password_change/"
"""A page for whoever may enter the console, whatever else they may."""


@pytest.fixture(scope="module")
def running() -> Iterator[OpenIDProvider]:
    with OpenIDProvider() as provider:
        yield provider


class Site:
    """Our service on the live server, set up with the provider."""

    def __init__(self, url: str, provider: OpenIDProvider, settings: Any) -> None:
        self.url, self.provider, self._settings = url, provider, settings

    def configure(self, **keys: Any) -> None:
        config = self._settings.TRANSCRIBER
        signin = SignIn(provider=self.provider.url, provider_name="Acme", client_id="transcriber", client_secret="s3cret")
        self._settings.TRANSCRIBER = replace(config, signin=replace(signin, **keys))


@pytest.fixture
def site(running: OpenIDProvider, live_server: Any, settings: Any) -> Iterator[Site]:
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, BACKEND]
    provider_module.forget()
    made = Site(live_server.url, running, settings)
    made.configure()
    yield made
    provider_module.forget()
    # A connection that is kept keeps a thread of the live server, and with it a connection to a database that is to be removed.
    while Person.browsers:
        Person.browsers.pop().close()


class Person:
    """Somebody with a browser that follows redirects only when told to."""

    browsers: ClassVar[list[requests.Session]] = []

    def __init__(self, url: str) -> None:
        self.url = url
        self.browser = requests.Session()
        self.browsers.append(self.browser)

    def get(self, address: str, *, follow: bool = True) -> requests.Response:
        return self.browser.get(address if "://" in address else f"{self.url}{address}", allow_redirects=follow, timeout=60)

    def begin(self, wanted: str | None = None) -> str:
        """The provider's page, to which we were led."""
        answer = self.get("/signin/" + (f"?{urlencode({'next': wanted})}" if wanted is not None else ""), follow=False)
        assert answer.status_code == 302
        return answer.headers["Location"]

    def agree(self, address: str, subject: str) -> str:
        """Say at the provider who one is; the address that leads back."""
        answer = self.browser.post(address, data={"sub": subject}, allow_redirects=False, timeout=60)
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"]

    def sign_in(self, subject: str, wanted: str | None = None) -> requests.Response:
        """All the way; where it ended, redirects of ours not followed."""
        return self.get(self.agree(self.begin(wanted), subject), follow=False)

    def is_in(self) -> bool:
        return self.get("/api/v1/records/").status_code == 200


@pytest.fixture
def person(site: Site) -> Person:
    return Person(site.url)


def told(answer: requests.Response, person: Person) -> str:
    """What the login page says after a sign-in that failed."""
    assert answer.status_code == 302
    assert urlsplit(answer.headers["Location"]).path == LOGIN
    page = person.get(answer.headers["Location"])
    assert page.status_code == 200
    found = re.search(r'class="errornote[^>]*>\s*(.*?)\s*</div>', page.text, re.DOTALL)
    assert found, page.text
    return unescape(found[1])


def user_of(subject: str) -> User:
    return Identity.objects.get(subject=subject).user


# ---- who somebody is --------------------------------------------------------------------------------------------------------------------


def test_the_first_sign_in_makes_a_user_without_rights(site: Site, person: Person) -> None:
    site.provider.tell("sub-anna", preferred_username="anna", email="anna@example.org", email_verified=True, given_name="Anna")

    answer = person.sign_in("sub-anna")

    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    user = user_of("sub-anna")
    assert (user.username, user.email, user.first_name) == ("anna", "anna@example.org", "Anna")
    assert not user.is_staff
    assert not user.is_superuser
    assert not user.has_usable_password()
    assert person.is_in()
    assert "You are signed in as anna, but only staff may enter the console." in person.get("/admin/").text


def test_the_second_is_the_same_user_whatever_they_are_called_by_now(site: Site, person: Person) -> None:
    site.provider.tell("sub-bert", preferred_username="bert", email="bert@example.org")
    person.sign_in("sub-bert")
    first = user_of("sub-bert")
    site.provider.tell("sub-bert", preferred_username="robert", email="robert@example.org")

    Person(site.url).sign_in("sub-bert")

    assert user_of("sub-bert") == first
    assert User.objects.count() == 1


def test_nobody_gets_an_account_by_its_name_or_address(site: Site, person: Person) -> None:
    owner = make_user("owner", email="owner@example.org", is_staff=True, is_superuser=True)
    site.provider.tell("mallory", preferred_username="owner", email="owner@example.org", email_verified=True)

    person.sign_in("mallory")

    assert user_of("mallory") != owner
    assert user_of("mallory").username == "owner-2"
    assert not user_of("mallory").is_staff


@pytest.mark.parametrize(
    ("claims", "is_theirs"),
    [
        ({"email": "Owner@Example.org", "email_verified": True}, True),
        ({"email": "owner@example.org", "email_verified": False}, False),
        ({"email": "owner@example.org"}, False),
        ({"email": "owner@other.example", "email_verified": True}, False),
        ({"email_verified": True}, False),
    ],
)
def test_a_verified_address_leads_to_an_account_if_that_is_wanted(
    site: Site, person: Person, claims: dict[str, object], is_theirs: bool
) -> None:
    owner = make_user("owner", email="owner@example.org")
    make_user("without address")
    site.configure(link_by_email=True)
    site.provider.tell("the-owner", **claims)

    person.sign_in("the-owner")

    assert (user_of("the-owner") == owner) is is_theirs


def test_an_address_that_was_given_to_somebody_new_does_not_lead_to_the_old_account(site: Site, person: Person) -> None:
    make_user("owner", email="owner@example.org")
    site.configure(link_by_email=True)
    for subject in ("first", "second"):
        site.provider.tell(subject, email="owner@example.org", email_verified=True)
        Person(site.url).sign_in(subject)

    assert user_of("first").username == "owner"
    assert user_of("second").username != "owner"


def test_an_address_of_two_accounts_leads_to_neither(site: Site, person: Person) -> None:
    ours = {make_user(email="both@example.org").pk, make_user(email="BOTH@example.org").pk}
    site.configure(link_by_email=True)
    site.provider.tell("which", email="both@example.org", email_verified=True)

    person.sign_in("which")

    assert user_of("which").pk not in ours


def test_whoever_has_no_account_stays_out_if_that_is_wanted(site: Site, person: Person) -> None:
    site.configure(create_users=False)

    assert told(person.sign_in("stranger"), person) == "Acme knows you, but you have no account here. Ask whoever runs this service."
    assert not User.objects.exists()


def test_a_name_that_no_user_may_have_becomes_one(site: Site, person: Person) -> None:
    site.provider.tell("odd", preferred_username="<b>o d\u0000d</b>" + "x" * 300)

    person.sign_in("odd")

    user_of("odd").full_clean(exclude=["password"])


# ---- what they may do -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "is_staff", "is_superuser"),
    [(["admins"], True, True), (["operators"], True, False), (["others"], False, False), (None, False, False), ("operators", True, False)],
)
def test_rights_follow_the_claim(site: Site, person: Person, groups: object, is_staff: bool, is_superuser: bool) -> None:
    site.configure(staff=("operators",), superusers=("admins",))
    site.provider.tell("carla", groups=groups)

    answer = person.sign_in("carla")

    assert answer.headers["Location"] == "/admin/"
    assert (user_of("carla").is_staff, user_of("carla").is_superuser) == (is_staff, is_superuser)
    assert person.get(STAFF_ONLY, follow=False).status_code == (200 if is_staff else 302)


def test_rights_that_are_claimed_no_more_are_taken_away_in_every_browser(site: Site, person: Person) -> None:
    site.configure(staff=("operators",), superusers=("admins",), groups=("viewers",))
    site.provider.tell("dora", groups=["admins", "viewers"])
    viewers, other = Group.objects.create(name="viewers"), Group.objects.create(name="admins")
    person.sign_in("dora")
    assert person.get(STAFF_ONLY, follow=False).status_code == 200
    user_of("dora").groups.add(other)
    assert set(user_of("dora").groups.all()) == {viewers, other}

    site.provider.tell("dora", groups=["nothing"])
    Person(site.url).sign_in("dora")

    assert not user_of("dora").is_staff
    assert not user_of("dora").is_superuser
    assert set(user_of("dora").groups.all()) == {other}, "groups that the provider does not speak of are the operator's own"
    assert person.get(STAFF_ONLY, follow=False).status_code == 302


def test_rights_given_by_hand_stay_where_no_claim_is_set_up(site: Site, person: Person) -> None:
    person.sign_in("emil")
    User.objects.update(is_staff=True)

    Person(site.url).sign_in("emil")

    assert user_of("emil").is_staff


def test_roles_may_lie_deeper(site: Site, person: Person) -> None:
    site.configure(groups_claim="realm_access.roles", superusers=("admin",))
    site.provider.tell("frida", realm_access={"roles": ["admin"]}, groups=[])

    person.sign_in("frida")

    assert user_of("frida").is_superuser


def test_whoever_is_not_among_the_users_stays_out(site: Site, person: Person) -> None:
    site.configure(users=("people",), staff=("operators",))
    site.provider.tell("gerd", groups=["operators"])
    person.sign_in("gerd")
    assert user_of("gerd").is_staff
    site.provider.tell("gerd", groups=["others"])
    again, stranger = Person(site.url), Person(site.url)

    expected = "Acme knows you, but you are not among those who may sign in here. Ask whoever runs this service."
    assert told(again.sign_in("gerd"), again) == expected
    assert told(stranger.sign_in("nobody"), stranger) == expected

    assert not again.is_in()
    assert not user_of("gerd").is_staff, "other browsers of theirs are still signed in"
    assert not Identity.objects.filter(subject="nobody").exists()


def test_an_account_that_was_switched_off_lets_nobody_in(site: Site, person: Person) -> None:
    person.sign_in("hans")
    assert person.is_in()

    User.objects.update(is_active=False)

    assert not person.is_in()
    again = Person(site.url)
    assert told(again.sign_in("hans"), again) == "Your account here is switched off. Ask whoever runs this service."
    assert not again.is_in()


# ---- the way there and back -------------------------------------------------------------------------------------------------------------


def test_what_was_wanted_is_shown_afterwards(site: Site, person: Person) -> None:
    assert 'href="/signin/?next=%2Fapi%2Fv1%2Fdocs%2F%3Fa%3D1"' in person.get(f"{LOGIN}?next=/api/v1/docs/%3Fa%3D1").text

    assert person.sign_in("ida", "/api/v1/docs/?a=1").headers["Location"] == "/api/v1/docs/?a=1"


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example", "http:///evil.example", ""]
)
def test_nobody_is_led_elsewhere(site: Site, person: Person, wanted: str) -> None:
    assert person.sign_in("ida", wanted).headers["Location"] == "/admin/"


def test_the_request_has_state_nonce_and_a_challenge(site: Site, person: Person) -> None:
    asked = [parse_qs(urlsplit(Person(site.url).begin()).query) for _ in range(2)]

    for query in asked:
        assert query["code_challenge_method"] == ["S256"]
        assert query["redirect_uri"] == [f"{site.url}/signin/callback/"]
        assert query["scope"] == ["openid profile email"]
    for secret in ("state", "nonce", "code_challenge"):
        assert asked[0][secret] != asked[1][secret]


STALE = "This sign-in was begun in another browser, or too long ago. Please begin again."
UNTRUSTED = "The answer of Acme could not be trusted, so you were not signed in. The service's log says more."


def test_a_state_that_is_not_ours_is_refused(site: Site, person: Person) -> None:
    back = person.agree(person.begin(), "karl")
    state = parse_qs(urlsplit(back).query)["state"][0]

    assert told(person.get(back.replace(state, "x" * 32), follow=False), person) == STALE
    assert told(person.get("/signin/callback/", follow=False), person) == STALE
    assert not person.is_in()


def test_another_browser_can_not_finish_what_one_has_begun(site: Site, person: Person) -> None:
    back = person.agree(person.begin(), "karl")
    other = Person(site.url)
    other.begin()

    assert told(other.get(back, follow=False), other) == STALE
    assert not other.is_in()


def test_the_same_answer_counts_once(site: Site, person: Person) -> None:
    back = person.agree(person.begin(), "karl")
    assert person.get(back, follow=False).headers["Location"] == "/admin/"

    assert told(person.get(back, follow=False), person) == STALE


def test_an_answer_that_comes_too_late_is_refused(site: Site, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    back = person.agree(person.begin(), "karl")
    monkeypatch.setattr("transcriber.signin.views.RETURN_WITHIN_S", -1)

    assert told(person.get(back, follow=False), person) == STALE


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("nonce", "another"), ("code_challenge", "another"), ("client_id", "somebody-else"), ("scope", "profile")],
)
def test_an_answer_to_another_request_is_refused(site: Site, person: Person, ours: str, theirs: str) -> None:
    """Another nonce in the token, a verifier that does not fit, a code for somebody else, no token at all."""
    address = urlsplit(person.begin())
    query = {name: values[0] for name, values in parse_qs(address.query).items()} | {ours: theirs}

    back = person.agree(address._replace(query=urlencode(query)).geturl(), "karl")

    assert told(person.get(back, follow=False), person) == UNTRUSTED
    assert not User.objects.exists()


def test_a_token_of_another_issuer_is_refused(site: Site, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    back = person.agree(person.begin(), "karl")
    known = provider_module.discover()
    monkeypatch.setattr(provider_module, "discover", lambda: replace(known, issuer="https://elsewhere.example"))

    assert told(person.get(back, follow=False), person) == UNTRUSTED


def test_a_token_that_has_run_out_is_refused(site: Site, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    back = person.agree(person.begin(), "karl")
    monkeypatch.setattr(provider_module, "SKEW_S", -7200)

    assert told(person.get(back, follow=False), person) == UNTRUSTED


def test_answers_that_speak_of_two_people_are_refused(site: Site, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_module.ProviderBackend, "get_userinfo", lambda *_: {"sub": "the-owner"})

    assert told(person.sign_in("karl"), person) == UNTRUSTED
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"aud": "somebody-else"},
        {"aud": None},
        {"iss": "https://elsewhere.example"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"iat": 2**32},
    ],
    ids=str,
)
def test_only_a_token_for_us_of_now_is_taken(site: Site, change: dict[str, object]) -> None:
    now = int(time.time())
    claims = {"iss": site.provider.url, "sub": "karl", "aud": "transcriber", "iat": now, "exp": now + 600, **change}
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    token = jwt.encode({name: value for name, value in claims.items() if value is not None}, key, "RS256")
    backend = provider_module.ProviderBackend()

    if change:
        with pytest.raises(jwt.InvalidTokenError):
            backend.get_payload_data(token, key.public_key())
    else:
        assert backend.get_payload_data(token, key.public_key())["sub"] == "karl"


def test_a_signature_with_the_shared_secret_is_refused(site: Site) -> None:
    secret = "s3cret" * 8
    forged = jwt.encode({"iss": site.provider.url, "sub": "karl", "aud": "transcriber", "iat": 1, "exp": 2**33}, secret)

    with pytest.raises(jwt.InvalidAlgorithmError):
        provider_module.ProviderBackend().get_payload_data(forged, secret)


def test_one_who_calls_it_off_is_told_so_and_may_stay_where_they_were(site: Site, person: Person) -> None:
    address = person.begin("/api/v1/docs/")
    back = person.browser.post(address, data={"action": "deny"}, allow_redirects=False, timeout=60).headers["Location"]
    state = parse_qs(urlsplit(address).query)["state"][0]

    answer = person.get(f"{back}&state={state}", follow=False)

    assert answer.headers["Location"] == f"{LOGIN}?next=%2Fapi%2Fv1%2Fdocs%2F"
    assert told(answer, person) == "You were not signed in: Acme refused it, or you called it off."


def test_a_strange_link_signs_nobody_out(site: Site, person: Person) -> None:
    person.sign_in("karl")

    person.get("/signin/callback/?error=access_denied&state=made-up", follow=False)

    assert person.is_in()


def test_signing_out(site: Site, person: Person) -> None:
    person.sign_in("karl")
    person.get(LOGIN)

    answer = person.browser.post(
        f"{site.url}/signin/out/", data={"csrfmiddlewaretoken": person.browser.cookies["csrftoken"]}, allow_redirects=False, timeout=60
    )

    assert answer.headers["Location"] == LOGIN
    assert not person.is_in()


def test_a_provider_that_is_switched_off_in_the_configuration_keeps_nobody_signed_in(site: Site, person: Person) -> None:
    person.sign_in("karl")
    site.configure(provider="")

    assert not person.is_in()
    assert "Sign in with" not in person.get(LOGIN).text


def test_somebody_whom_the_provider_refuses_slows_nobody_down(site: Site, person: Person) -> None:
    site.configure(users=("people",))
    for _ in range(7):
        person.sign_in("nobody")
    make_user("owner", password="right horse battery staple", is_staff=True)
    person.get(LOGIN)

    answer = person.browser.post(
        f"{site.url}{LOGIN}",
        data={"username": "owner", "password": "right horse battery staple", "csrfmiddlewaretoken": person.browser.cookies["csrftoken"]},
        allow_redirects=False,
        timeout=60,
    )

    assert answer.status_code == 302


def test_nothing_that_was_said_reaches_the_log(site: Site, person: Person, caplog: pytest.LogCaptureFixture) -> None:
    site.configure(users=("people",))
    site.provider.tell("sub-nora", preferred_username="nora", email="nora@example.org", email_verified=True, groups=["people"])
    with caplog.at_level("DEBUG", "transcriber"), caplog.at_level("DEBUG", "mozilla_django_oidc"):
        back = person.agree(person.begin("/admin/?q=private"), "sub-nora")
        person.get(back, follow=False)
        person.get(back, follow=False)
        Person(site.url).sign_in("sub-otto")

    lines = [record.getMessage() for record in caplog.records if record.name.startswith(("transcriber", "mozilla"))]
    assert "sign-in by the provider failed: stale" in lines
    assert "sign-in by the provider failed: no_right" in lines
    secrets = [value for values in parse_qs(urlsplit(back).query).values() for value in values]
    for word in ("nora", "otto", "private", "s3cret", *secrets):
        assert not any(word in line for line in lines), word


# ---- a provider that does not answer ----------------------------------------------------------------------------------------------------


def test_a_provider_that_is_away(site: Site, person: Person) -> None:
    away = "Acme does not answer at the moment. Try again in a while."
    with OpenIDProvider() as provider:
        site.provider = provider
        site.configure()
        back = person.agree(person.begin("/api/v1/docs/"), "paul")
        provider.stop()

        assert told(person.get(back, follow=False), person) == away
        provider_module.forget()
        answer = person.get("/signin/?next=/api/v1/docs/", follow=False)
        assert told(answer, person) == away

        provider.start()
        provider_module.forget()
        assert person.sign_in("paul", "/api/v1/docs/").headers["Location"] == "/api/v1/docs/"


class Failing:
    """A provider that answers with an error, and not before it may."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Semaphore(0), threading.Event()
        self.times = 0
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told.times += 1
                told.asked.release()
                told.may_answer.wait(60)
                self.send_error(503)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self) -> Failing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.mark.parametrize(("remembered", "times"), [(3600, 1), (-1, 3)])
def test_a_provider_that_failed_is_not_asked_again_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, remembered: int, times: int
) -> None:
    monkeypatch.setattr(provider_module, "AWAY_FOR_S", remembered)
    with Failing() as failing:
        failing.may_answer.set()
        site.configure(provider=failing.url)
        for _ in range(3):
            person = Person(site.url)
            assert told(person.get("/signin/", follow=False), person) == "Acme does not answer at the moment. Try again in a while."

        assert failing.times == times


def test_one_waits_for_a_provider_that_hangs_and_the_others_do_not(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_module, "PATIENCE_S", 0)
    monkeypatch.setattr(provider_module, "TIMEOUT_S", (60, 60))
    first = Person(site.url)
    answers: list[requests.Response] = []
    with Failing() as failing:
        site.configure(provider=failing.url)
        asking = threading.Thread(target=lambda: answers.append(first.get("/signin/", follow=False)))
        asking.start()
        assert failing.asked.acquire(timeout=60)

        other = Person(site.url)
        assert told(other.get("/signin/", follow=False), other) == "Acme does not answer at the moment. Try again in a while."
        assert not answers

        failing.may_answer.set()
        asking.join()
        assert failing.times == 1


def test_a_stranger_who_sets_out_and_does_not_come_back_is_soon_forgotten(site: Site, person: Person) -> None:
    person.begin()

    assert Session.objects.get().expire_date <= timezone.now() + timedelta(seconds=RETURN_WITHIN_S)


@pytest.mark.parametrize("how", ["provider", "password"])
def test_a_session_lasts_as_long_as_any_however_they_come_in(site: Site, person: Person, settings: Any, how: str) -> None:
    make_user("owner", password="right horse battery staple", is_staff=True)
    address = person.begin()
    if how == "provider":
        person.get(person.agree(address, "karl"), follow=False)
    else:
        person.get(LOGIN)
        token = person.browser.cookies["csrftoken"]
        form = {"username": "owner", "password": "right horse battery staple", "csrfmiddlewaretoken": token}
        person.browser.post(f"{site.url}{LOGIN}", data=form, allow_redirects=False, timeout=60)

    assert person.is_in()
    assert Session.objects.get().expire_date > timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE - 3600)


def test_one_who_is_signed_in_and_sets_out_again_stays_so(site: Site, person: Person, settings: Any) -> None:
    person.sign_in("karl")
    person.begin()

    assert Session.objects.get().expire_date > timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE - 3600)


def test_an_address_where_no_provider_is(site: Site, person: Person) -> None:
    site.configure(provider=site.url)

    assert told(person.get("/signin/", follow=False), person) == "Acme does not answer at the moment. Try again in a while."


# ---- the whole of it --------------------------------------------------------------------------------------------------------------------


def test_a_real_service_starts_without_its_provider_and_signs_in_once_it_is_there(make_service: MakeService) -> None:
    with OpenIDProvider() as provider:
        provider.stop()
        service = make_service(
            TRANSCRIBER_PIPELINE_WORKERS="0",
            TRANSCRIBER_SIGNIN_PROVIDER=f"{provider.url}/",
            TRANSCRIBER_SIGNIN_CLIENT_ID="transcriber",
            TRANSCRIBER_SIGNIN_CLIENT_SECRET="s3cret",
            TRANSCRIBER_SIGNIN_SUPERUSERS="admins",
        )
        service.start("serve")
        person = Person(service.url)
        answer = person.get("/signin/", follow=False)
        assert told(answer, person) == "OpenID Connect does not answer at the moment. Try again in a while."

        provider.start()
        wait_for(lambda: person.get("/signin/", follow=False).headers["Location"].startswith(provider.url), within=60)
        provider.tell("quentin", groups=["admins"])
        answer = person.sign_in("quentin", "/admin/records/audiorecord/")

    assert answer.headers["Location"] == "/admin/records/audiorecord/"
    assert person.get("/admin/records/audiorecord/", follow=False).status_code == 200
    assert "s3cret" not in service.log


@pytest.mark.no_database
@pytest.mark.parametrize("how", [{"color_scheme": "light"}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}])
def test_in_a_browser(site: Site, tmp_path: Path, how: dict[str, Any]) -> None:
    site.configure(superusers=("admins",))
    site.provider.tell("rosa", preferred_username="rosa")
    with chromium() as browser, visitor(browser, **how) as page:
        # The provider's page wants a style sheet from elsewhere.
        page.route(lambda url: "127.0.0.1" not in url and "localhost" not in url, lambda route: route.abort())
        page.goto(f"{site.url}/admin/records/audiorecord/")
        assert violations(page) == []
        assert not scrolls_sideways(page)
        page.get_by_role("link", name="Sign in with Acme").click()
        page.wait_for_url(f"{site.provider.url}/**")
        page.get_by_role("button", name="Deny").click()
        page.get_by_text("This sign-in was begun in another browser").wait_for()  # this provider forgets the state when it refuses
        page.get_by_role("link", name="Sign in with Acme").click()
        page.get_by_placeholder("sub").fill("rosa")
        page.get_by_role("button", name="Authorize").click()
        page.get_by_text("You are signed in as rosa, but only staff may enter the console.").wait_for()
        assert violations(page) == []
        assert not scrolls_sideways(page)
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("You are signed in as").wait_for(state="detached")

        site.provider.tell("rosa", groups=["admins"])
        page.goto(f"{site.url}/admin/records/audiorecord/")
        page.get_by_role("link", name="Sign in with Acme").click()
        page.get_by_placeholder("sub").fill("rosa")
        page.get_by_role("button", name="Authorize").click()
        page.wait_for_url(f"{site.url}/admin/records/audiorecord/", timeout=PATIENCE)
