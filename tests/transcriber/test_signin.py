"""Passwords: guessing is slowed down, and nobody can shut out somebody else."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axes.models import AccessAttempt, AccessLog
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.core.checks import Tags, run_checks
from django.core.management import call_command
from django.db import connection
from django.db.models import F
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.factories import make_user
from transcriber.checks import check_sign_in
from transcriber.signin import attempts, leftovers

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]
LOGIN = "/admin/login/"
RIGHT = "right horse battery staple"
ELSEWHERE = "192.0.2.1"


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    """Hundreds of them are tried here, and a real hash takes its time on purpose."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def owner() -> User:
    return make_user("owner", password=RIGHT, is_staff=True, is_superuser=True)


def attempt(client: Client | None = None, password: str = "wrong", *, name: str = "owner", address: str = ELSEWHERE, **more: Any) -> Any:
    return (client or Client()).post(LOGIN, {"username": name, "password": password}, REMOTE_ADDR=address, **more)


def let_pass(**span: float) -> None:
    """As if what was counted had been that much earlier."""
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(**span))


def is_in(response: HttpResponse) -> bool:
    return response.status_code == 302


# ---- how long one waits -----------------------------------------------------------------------------------------------------------------


def test_wrong_passwords_are_free_at_first(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        response = attempt()
        assert response.status_code == 200
        assert "correct username and password" in response.content.decode()
        assert ".errornote { display: none; }" in response.content.decode(), "it is announced as the error below, and there is none below"


def test_what_is_missing_is_announced(owner: User) -> None:
    assert ".errornote { display: none; }" not in attempt(password="").content.decode()


def test_then_one_waits_and_is_told_how_long(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()

    response = attempt(password=RIGHT)

    assert response.status_code == 429
    assert 0 < int(response["Retry-After"]) <= 60
    text = response.content.decode()
    assert "There were too many attempts to sign in. Try again in 1 minute." in text
    assert "correct username and password" not in text


def test_the_wait_ends_by_itself_and_hammering_does_not_lengthen_it(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()
    for _ in range(20):
        assert attempt().status_code == 429
    let_pass(seconds=61)

    assert is_in(attempt(password=RIGHT))


def test_each_further_failure_doubles_the_wait(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()
    for minutes in (1, 2, 4, 8, 16, 32, 60, 60):
        assert int(attempt()["Retry-After"]) == pytest.approx(minutes * 60, abs=30)
        let_pass(minutes=minutes, seconds=1)
        assert attempt().status_code == 200


def test_all_is_forgotten_after_a_day(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()
    let_pass(hours=24, minutes=1)

    for _ in range(attempts.FREE_PER_PAIR):
        assert attempt().status_code == 200


def test_the_right_password_takes_back_what_was_counted(owner: User) -> None:
    for _ in range(3 * attempts.FREE_PER_PAIR):
        assert is_in(attempt(password=RIGHT))
    for _ in range(attempts.FREE_PER_PAIR - 1):
        attempt()
    assert is_in(attempt(password=RIGHT))

    assert not AccessAttempt.objects.exists()


def test_one_address_can_not_go_through_the_names(owner: User) -> None:
    for number in range(attempts.FREE_PER_ADDRESS):
        assert attempt(name=f"name{number}").status_code == 200

    assert attempt(name="another").status_code == 429
    assert is_in(attempt(password=RIGHT, address="192.0.2.77"))


def test_many_addresses_can_not_go_through_the_passwords(owner: User) -> None:
    for number in range(attempts.FREE_PER_NAME):
        assert attempt(address=f"198.51.100.{number}").status_code == 200

    assert attempt(address="203.0.113.9").status_code == 429
    assert attempt(address="203.0.113.9", name="another").status_code == 200


def test_it_does_not_matter_whether_there_is_such_a_user(owner: User) -> None:
    def answers(name: str) -> list[tuple[int, bool]]:
        return [(response.status_code, "Retry-After" in response) for response in (attempt(name=name) for _ in range(7))]

    assert answers("owner") == answers("nobody")


def test_other_browsers_do_not_get_around_it(owner: User) -> None:
    for number in range(attempts.FREE_PER_PAIR):
        attempt(HTTP_USER_AGENT=f"browser {number}")

    assert attempt(HTTP_USER_AGENT="yet another").status_code == 429


@pytest.mark.django_db(transaction=True)
def test_many_at_once_do_not_get_around_it(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR - 1):
        attempt()
    answers: list[int] = []

    def guess() -> None:
        try:
            answers.append(attempt().status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=guess) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [200] + [429] * 7


GUESSES = 12


def at_once(guess: Callable[[int], int]) -> list[int]:
    """The statuses that as many answers have, to guesses that set out together."""
    answers: list[int] = []
    ready = threading.Barrier(GUESSES)

    def run(number: int) -> None:
        try:
            connection.ensure_connection()
            ready.wait(60)
            answers.append(guess(number))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[number]) for number in range(GUESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(answers)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("https", [False, True], ids=["address known", "address unknown"])
def test_nor_do_they_where_nobody_has_failed_before(owner: User, settings: Any, https: bool) -> None:
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, web=replace(settings.TRANSCRIBER.web, https=https))

    answers = at_once(lambda number: attempt().status_code)

    assert answers == [200] * attempts.FREE_PER_PAIR + [429] * (GUESSES - attempts.FREE_PER_PAIR)
    row = AccessAttempt.objects.get()
    assert (row.ip_address, row.failures_since_start) == (None if https else ELSEWHERE, attempts.FREE_PER_PAIR)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("spread", ["names", "addresses"])
def test_nor_do_they_with_many_names_or_from_many_addresses(owner: User, monkeypatch: pytest.MonkeyPatch, spread: str) -> None:
    monkeypatch.setattr(attempts, "FREE_PER_ADDRESS", 3)
    monkeypatch.setattr(attempts, "FREE_PER_NAME", 3)

    def guess(number: int) -> int:
        response = attempt(name=f"name{number}") if spread == "names" else attempt(address=f"198.51.100.{number}")
        return int(response.status_code)

    assert at_once(guess) == [200] * 3 + [429] * (GUESSES - 3)


def test_a_refused_guess_leaves_no_row(owner: User) -> None:
    for number in range(attempts.FREE_PER_ADDRESS + 3):
        attempt(name=f"name{number}")

    assert AccessAttempt.objects.count() == attempts.FREE_PER_ADDRESS


@pytest.mark.django_db(transaction=True)
def test_many_people_sign_in_at_once(owner: User) -> None:
    """Each writes; on SQLite they take turns."""
    names = [make_user(password=RIGHT, is_staff=True).username for _ in range(8)]
    answers: list[bool] = []

    def enter(name: str) -> None:
        try:
            attempt(name=name)
            answers.append(is_in(attempt(name=name, password=RIGHT)))
        finally:
            connection.close()

    threads = [threading.Thread(target=enter, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [True] * 8


# ---- the owner is not shut out ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def known(owner: User) -> Client:
    """A browser in which the owner has signed in before."""
    client = Client()
    assert is_in(attempt(client, RIGHT))
    client.cookies.pop("sessionid")
    return client


def attack(address: Callable[[int], str]) -> None:
    for number in range(attempts.FREE_PER_NAME):
        attempt(address=address(number))
    assert attempt(password=RIGHT).status_code == 429


def test_a_browser_that_is_known_waits_for_nobody_elsewhere(known: Client) -> None:
    attack(lambda number: f"198.51.100.{number}")

    assert is_in(attempt(known, RIGHT))


def test_nor_for_somebody_at_the_same_address(known: Client) -> None:
    attack(lambda number: ELSEWHERE)

    assert is_in(attempt(known, RIGHT))


def test_a_known_browser_may_not_guess_for_ever_either(known: Client) -> None:
    for number in range(attempts.FREE_PER_PAIR):
        assert attempt(known, address=f"198.51.100.{number}").status_code == 200

    assert attempt(known, RIGHT, address="198.51.100.99").status_code == 429


def test_it_is_known_for_its_own_name_alone(known: Client) -> None:
    make_user("somebody", password=RIGHT)
    for number in range(attempts.FREE_PER_NAME):
        attempt(name="somebody", address=f"198.51.100.{number}")

    assert attempt(known, RIGHT, name="somebody").status_code == 429


def test_the_mark_can_not_be_made_up(known: Client) -> None:
    assert known.cookies[attempts.COOKIE]["httponly"]
    known.cookies[attempts.COOKIE] = known.cookies[attempts.COOKIE].value[:-3] + "AAA"
    attack(lambda number: f"198.51.100.{number}")

    assert attempt(known, RIGHT).status_code == 429


# ---- where somebody comes from ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("web", "headers", "expected"),
    [
        ({}, {}, "192.0.2.1"),
        ({}, {"HTTP_X_FORWARDED_FOR": "203.0.113.9"}, "192.0.2.1"),
        ({"https": True}, {"HTTP_X_FORWARDED_FOR": "203.0.113.9"}, None),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "203.0.113.9"}, "203.0.113.9"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "10.0.0.1, 203.0.113.9"}, "203.0.113.9"),
        ({"proxies": 2}, {"HTTP_X_FORWARDED_FOR": "10.0.0.1, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"),
        ({"proxies": 2}, {"HTTP_X_FORWARDED_FOR": "203.0.113.9"}, "192.0.2.1"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "made up"}, "192.0.2.1"),
        ({"proxies": 1}, {}, "192.0.2.1"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "203.0.113.9:5678"}, "203.0.113.9"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "10.0.0.1:1, 203.0.113.9:5678"}, "203.0.113.9"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "[2001:db8:1:2:3:4:5:6]:443"}, "2001:db8:1:2::"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "[2001:db8:1:2:3:4:5:6]"}, "2001:db8:1:2::"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "2001:db8::1"}, "2001:db8::"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "::ffff:203.0.113.9"}, "203.0.113.9"),
        ({"proxies": 1}, {"HTTP_X_FORWARDED_FOR": "made up:80"}, "192.0.2.1"),
        ({}, {"REMOTE_ADDR": "::ffff:192.0.2.9"}, "192.0.2.9"),
        ({}, {"REMOTE_ADDR": ""}, None),
    ],
)
def test_the_visitors_address(settings: Any, web: dict[str, Any], headers: dict[str, Any], expected: str | None) -> None:
    config = settings.TRANSCRIBER
    settings.TRANSCRIBER = replace(config, web=replace(config.web, **web))

    assert attempts.address(RequestFactory().get("/", **{"REMOTE_ADDR": "192.0.2.1", **headers})) == expected


def test_an_address_that_nobody_knows_is_no_address_of_everybody(owner: User, settings: Any) -> None:
    """Behind a proxy that the configuration doesn't speak of, one who guesses would shut out everybody."""
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, web=replace(settings.TRANSCRIBER.web, https=True))
    for number in range(attempts.FREE_PER_ADDRESS):
        attempt(name=f"name{number}")

    assert is_in(attempt(password=RIGHT))


# ---- what is kept and said --------------------------------------------------------------------------------------------------------------


def test_nothing_that_was_sent_is_kept_but_name_and_address(owner: User) -> None:
    client = Client()
    client.post(f"{LOGIN}?next=/secret-place/", {"username": "owner", "password": "hunter2", "note": "x"}, headers={"user-agent": "Mine"})

    kept = AccessAttempt.objects.values().get()
    assert (kept["username"], kept["ip_address"], kept["failures_since_start"]) == ("owner", "127.0.0.1", 1)
    assert [kept[name] for name in ("user_agent", "get_data", "post_data", "http_accept", "path_info")] == [""] * 5
    assert not AccessLog.objects.exists()


def test_no_name_and_no_password_reaches_the_log(owner: User, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for _ in range(attempts.FREE_PER_PAIR + 2):
            attempt(password="hunter2")
        let_pass(minutes=2)
        assert is_in(attempt(password=RIGHT))

    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("django.db")]
    assert "attempts to sign in are slowed down: too many have failed for one name or from one address" in ours
    for word in ("owner", "hunter2", RIGHT, ELSEWHERE):
        assert not any(word in line for line in ours), word


def test_what_counts_no_longer_is_removed(owner: User) -> None:
    attempt()
    let_pass(hours=25)
    attempt(name="another")
    Session.objects.create(session_key="old", expire_date=timezone.now() - timedelta(seconds=1))
    Session.objects.create(session_key="new", expire_date=timezone.now() + timedelta(hours=1))

    leftovers.clear(now=timezone.now())

    assert AccessAttempt.objects.get().username == "another"
    assert Session.objects.get().session_key == "new"


def test_the_sentence_has_a_plural(owner: User) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()
    let_pass(minutes=2)
    attempt()

    assert "Try again in 2 minutes." in attempt().content.decode()


# ---- lifting a wait ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["axes_reset"], ["axes_reset_username", "owner"], ["axes_reset_ip", ELSEWHERE]])
def test_a_command_ends_the_wait(owner: User, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()
    assert attempt(password=RIGHT).status_code == 429

    call_command(*command)

    assert is_in(attempt(password=RIGHT))


def test_an_operator_ends_the_wait_in_the_admin(owner: User, client: Client) -> None:
    for _ in range(attempts.FREE_PER_PAIR):
        attempt(name="anna")
    client.force_login(owner)
    page = "/admin/axes/accessattempt/"
    assert "anna" in client.get(page).content.decode()

    answer = client.post(page, {"action": "delete_selected", "_selected_action": [AccessAttempt.objects.get().pk], "post": "yes"})

    assert answer.status_code == 302
    assert attempt(name="anna").status_code == 200


def test_whoever_may_only_look_can_not_end_it(client: Client) -> None:
    viewer = make_user(is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_accessattempt"))
    attempt(name="anna")
    client.force_login(viewer)
    page = client.get("/admin/axes/accessattempt/")

    assert "anna" in page.content.decode()
    assert "delete_selected" not in page.content.decode()
    assert client.get("/admin/axes/accesslog/").status_code == 404
    assert client.get("/admin/axes/accessattempt/add/").status_code == 403


# ---- the rest of the service ------------------------------------------------------------------------------------------------------------


def test_the_api_pays_nothing_for_it(owner: User) -> None:
    """A token is no password: nothing is looked up and nothing is written for it."""
    from knox.models import get_token_model

    _, token = get_token_model().objects.create(user=owner)
    client = Client(headers={"authorization": f"Token {token}"})
    for _ in range(attempts.FREE_PER_PAIR):
        attempt()
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/api/v1/records/").status_code == 200

    statements = [query["sql"] for query in queries]
    assert [statement for statement in statements if not statement.startswith("SELECT")] == []
    assert not any("axes" in statement or "django_session" in statement for statement in statements)


def test_a_session_ends(owner: User, settings: Any) -> None:
    client = Client()
    assert is_in(attempt(client, RIGHT))

    assert client.cookies["sessionid"]["max-age"] == settings.SESSION_COOKIE_AGE == 12 * 3600


def test_somebody_who_is_no_staff_is_told_so_and_can_sign_out(client: Client) -> None:
    client.force_login(make_user("anna"))

    page = client.get(LOGIN, {"next": "/admin/"}).content.decode()
    assert "You are signed in as anna, but only staff may enter the console." in page
    assert 'href="/api/v1/docs/"' in page
    assert client.get("/signin/out/").status_code == 405
    assert client.post("/signin/out/")["Location"] == LOGIN
    assert "You are signed in" not in client.get(LOGIN).content.decode()


@pytest.mark.parametrize(
    ("provider", "found"),
    [("", 0), ("https://id.example.org", 0), ("http://127.0.0.1:9400", 0), ("http://localhost:9400", 0), ("http://id.example.org", 1)],
)
def test_a_provider_without_encryption_is_warned_of(settings: Any, provider: str, found: int) -> None:
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, signin=replace(settings.TRANSCRIBER.signin, provider=provider))

    assert [problem.id for problem in check_sign_in(None)] == ["transcriber.W002"] * found


@pytest.mark.parametrize(
    ("web", "found"), [({}, 0), ({"proxies": 1}, 0), ({"https": True, "proxies": 1}, 0), ({"https": True, "proxies": 0}, 1)]
)
def test_a_proxy_that_is_not_counted_is_warned_of(settings: Any, web: dict[str, Any], found: int) -> None:
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, web=replace(settings.TRANSCRIBER.web, **web))

    assert [problem.id for problem in run_checks(tags=[Tags.security])] == ["transcriber.W003"] * found


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({}, 0),
        ({"provider": "https://id.example.org"}, 1),
        ({"provider": "https://id.example.org", "superusers": ("admins",), "staff": ("operators",)}, 1),
        ({"provider": "https://id.example.org", "users": ("people",)}, 0),
        ({"provider": "https://id.example.org", "create_users": False}, 0),
    ],
)
def test_a_provider_that_lets_everybody_in_is_warned_of(settings: Any, keys: dict[str, Any], found: int) -> None:
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, signin=replace(settings.TRANSCRIBER.signin, **keys))

    assert [problem.id for problem in run_checks(tags=[Tags.security])] == ["transcriber.W004"] * found


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PROVIDER": "https://id.example.org"}, "[signin] provider needs TRANSCRIBER_SIGNIN_CLIENT_ID as well."),
        ({"PROVIDER": "https://id.example.org", "CLIENT_ID": "x"}, "[signin] provider needs TRANSCRIBER_SIGNIN_CLIENT_SECRET as well."),
        ({"PROVIDER": "id.example.org"}, "TRANSCRIBER_SIGNIN_PROVIDER must be an address such as https://example.org."),
    ],
)
def test_half_a_configuration_stops_the_start(environment: dict[str, str], said: str) -> None:
    variables = {f"TRANSCRIBER_SIGNIN_{name}": value for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert said in done.stderr


def test_there_is_no_other_way_in_unless_it_is_set_up(client: Client) -> None:
    assert "Sign in with" not in client.get(LOGIN).content.decode()
    assert client.get("/signin/").status_code == 404
    assert client.get("/signin/callback/?code=x&state=y").status_code == 404
