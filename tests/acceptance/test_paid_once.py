"""Paid once: the submit step is killed with `kill -9` at every write and every call, and its answers are lost in every way."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service
from tests.fakes.killed_worker import POINTS
from tests.fakes.loopback import Delay, Reset, Status
from tests.fakes.s3 import S3
from tests.fakes.speechkit_server import SpeechKitServer

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("speechkit")]

BEFORE_THE_MARK = POINTS[: POINTS.index("after:mark")]
IN_BETWEEN = POINTS[POINTS.index("after:mark") : POINTS.index("after:id")]
AFTER_THE_ID = POINTS[POINTS.index("after:id") :]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture
def speechkit(s3: S3) -> Iterator[SpeechKitServer]:
    with SpeechKitServer(s3.url) as server:
        yield server


@pytest.fixture
def service(make_service: MakeService, s3: S3, speechkit: SpeechKitServer) -> Service:
    return make_service(
        **s3.environment(s3.make_bucket()),
        **speechkit.environment(),
        TRANSCRIBER_SPEECHKIT_POLL_INTERVAL="1s",
        TRANSCRIBER_BUCKET_KEEP_SOURCE="true",
    )


def work(service: Service, point: str = "") -> int:
    """Let a worker work until nothing is due; gives its exit status."""
    return service.run("-m", "tests.fakes.killed_worker", *filter(None, [point]), check=False).returncode


def let_the_lease_run_out(service: Service) -> None:
    """And the pauses, and the slots of the quota: minutes go by, and nobody waits for them."""
    moment = "'2020-01-01 00:00:00+00'" if service.database.url else "'2020-01-01 00:00:00'"
    service.database.execute(f"UPDATE audio_records SET delay_time = {moment}")
    service.database.execute("UPDATE provider_gates SET next_at = NULL, booked_until = NULL")


def stands(service: Service) -> tuple[str, str, str]:
    return service.database.query("SELECT state, halt_reason, error_code FROM audio_records")[0]


def finish(service: Service, speechkit: SpeechKitServer) -> None:
    """Let workers that nobody kills take the record as far as it goes."""
    for _ in range(8):
        speechkit.finish()
        let_the_lease_run_out(service)
        assert work(service) == 0
        state, halted, _ = stands(service)
        if state == "done" or halted:
            return


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, service: Service, speechkit: SpeechKitServer):
    service.put()

    assert work(service, point) == -signal.SIGKILL, "the point was not hit"
    paid_when_killed = speechkit.paid
    finish(service, speechkit)

    state, halted, code = stands(service)
    recognitions = service.database.query("SELECT external_id, submit_started_at IS NOT NULL FROM recognitions")
    assert len(recognitions) == 1
    if point in IN_BETWEEN:
        assert (state, halted, code) == ("normalized", "unconfirmed", "submission_unconfirmed")
        assert speechkit.paid == paid_when_killed == (0 if point in ("after:mark", "before:post") else 1)
    else:
        assert (state, halted) == ("done", "")
        assert speechkit.paid == 1
        assert recognitions[0][0] in speechkit.operations


def test_every_point_stands_in_one_of_the_three_parts():
    assert BEFORE_THE_MARK + IN_BETWEEN + AFTER_THE_ID == POINTS
    assert "sent" in IN_BETWEEN


@pytest.mark.parametrize(
    ("fault", "paid"),
    [
        pytest.param(Reset(acted=True), 1, id="reset-after-acceptance"),
        pytest.param(Reset(), 0, id="reset-before-acceptance"),
        pytest.param(Delay(seconds=3.0, acted=True), 1, id="timeout-after-acceptance"),
        pytest.param(Status(status=503, acted=True), 1, id="503-after-acceptance"),
        pytest.param(Status(status=502, shape="html"), 0, id="502-html"),
    ],
)
def test_an_answer_that_is_lost_is_never_asked_for_again_by_itself(fault, paid: int, service: Service, speechkit: SpeechKitServer):
    service.put()
    speechkit.faults.next("submit", fault)
    if isinstance(fault, Delay):
        service.environment["IMPATIENT"] = "1.0"

    finish(service, speechkit)
    finish(service, speechkit)

    assert stands(service) == ("normalized", "unconfirmed", "submission_unconfirmed")
    assert speechkit.paid == paid
    assert speechkit.requests.counts()["submit"] == 1


def test_an_unconfirmed_one_goes_on_when_the_operator_knows_the_operation(service: Service, speechkit: SpeechKitServer):
    service.put()
    assert work(service, "sent") == -signal.SIGKILL
    finish(service, speechkit)
    record, operation = service.database.query("SELECT id FROM audio_records")[0][0], next(iter(speechkit.operations))

    service.manage("confirm_submission", str(record), "--external-id", operation)
    finish(service, speechkit)

    assert stands(service)[0] == "done"
    assert speechkit.paid == 1


def test_an_unconfirmed_one_is_paid_again_when_the_operator_says_so(service: Service, speechkit: SpeechKitServer):
    service.put()
    assert work(service, "before:post") == -signal.SIGKILL
    finish(service, speechkit)
    record = service.database.query("SELECT id FROM audio_records")[0][0]

    service.manage("confirm_submission", str(record), "--submit-again")
    finish(service, speechkit)

    assert stands(service)[0] == "done"
    assert speechkit.paid == 1
    assert service.database.query("SELECT count(*) FROM recognitions") == [(2,)]


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_pauses_all_and_costs_nothing(status: int, service: Service, speechkit: SpeechKitServer):
    service.put(3)
    speechkit.faults.always("submit", Status(status=status))

    work(service)

    rows = service.database.query(
        "SELECT state, halt_reason, attempts, CASE WHEN error_text <> '' THEN 1 ELSE 0 END, acquisition_id FROM audio_records"
    )
    assert {row[0] for row in rows} == {"normalized"}
    assert {row[1:] for row in rows} == {("", 0, 1, None)}  # no attempt is spent, nothing halts, the reason can be read
    assert speechkit.requests.counts()["submit"] == 1  # the others did not even try
    speechkit.faults.clear()
    service.database.execute("UPDATE provider_gates SET paused_until = created WHERE kind = ''")
    for _ in range(12):  # each submission waits for its slot; time goes by at once here
        speechkit.finish()
        let_the_lease_run_out(service)
        work(service)
    assert [row[0] for row in service.database.query("SELECT state FROM audio_records")] == ["done"] * 3
    assert speechkit.paid == 3
