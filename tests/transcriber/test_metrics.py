from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from recognition.models import ProviderGate
from records.models import AudioRecord, RecordEvent, SeatedWorker
from records.operations import control
from records.operations.control import By
from records.operations.removal import remove
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_record, make_user
from transcriber.metrics import Journal, Queue

pytestmark = pytest.mark.django_db


def read(collector) -> dict[str, float]:
    """`name{label=value,…}` → value, as Prometheus reads what we send."""
    registry = CollectorRegistry()
    registry.register(collector)
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> dict[str, float]:
    return {
        sample.name + "{" + ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items())) + "}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def event(record, *, created, step="poll", outcome=EventOutcome.ADVANCED, origin=Origin.WORKER, ms=1500) -> None:
    RecordEvent.objects.create(record=record, created=created, step=step, outcome=outcome, origin=origin, duration_ms=ms)


# ---- how things stand ---------------------------------------------------------------------------------------------------------------


def test_records_are_counted_by_state_and_reason_and_their_ages_told(now):
    make_record(State.UPLOADED, now=now - timedelta(seconds=90))
    make_record(State.UPLOADED, now=now - timedelta(seconds=30))
    make_record(State.UPLOADED, now=now - timedelta(days=9), halted_at=now, halt_reason=HaltReason.STUCK)
    make_record(State.SUBMITTED, now=now - timedelta(seconds=10))
    make_record(State.DONE, now=now - timedelta(days=99))

    found = read(Queue(lambda: now))

    counts = {name: value for name, value in found.items() if name.startswith("transcriber_records{") and value}
    assert counts == {
        "transcriber_records{halt_reason=,state=uploaded}": 2,
        "transcriber_records{halt_reason=stuck,state=uploaded}": 1,
        "transcriber_records{halt_reason=,state=submitted}": 1,
    }
    assert [found[f"transcriber_oldest_record_age_seconds{{state={state}}}"] for state in ("uploaded", "normalized", "submitted")] == [
        90,
        0,
        10,
    ]
    assert not any("done" in name for name in found)


def test_the_lag_of_the_queue_is_that_of_what_is_due(now):
    make_record(now=now, delay_time=now - timedelta(seconds=45))
    make_record(now=now, delay_time=now - timedelta(seconds=5))
    make_record(now=now, delay_time=now + timedelta(seconds=5))
    make_record(now=now, delay_time=now - timedelta(days=1), halted_at=now, halt_reason=HaltReason.STUCK)

    found = read(Queue(lambda: now))

    assert (found["transcriber_due_records{}"], found["transcriber_oldest_due_seconds{}"]) == (2, 45)


def test_where_nothing_waits_nothing_lags(now):
    found = read(Queue(lambda: now))

    assert (found["transcriber_due_records{}"], found["transcriber_oldest_due_seconds{}"], found["transcriber_workers{}"]) == (0, 0, 0)


def test_workers_of_all_clusters_are_counted_and_the_dead_are_not(now):
    for seen in (now, now - timedelta(seconds=20), now - timedelta(minutes=5)):
        SeatedWorker.objects.create(cluster=uuid.uuid4(), seat=0, host="x", pid=1, started_at=seen, seen_at=seen)

    assert read(Queue(lambda: now))["transcriber_workers{}"] == 2


def test_a_paused_provider_is_told_by_its_reason(now):
    ProviderGate.objects.create(provider="speechkit", kind="", paused_until=now, pause_code="provider_key")
    ProviderGate.objects.create(provider="openai", kind="")
    ProviderGate.objects.create(provider="speechkit", kind="submit", next_at=now)

    paused = {name: value for name, value in read(Queue(lambda: now)).items() if "paused" in name}

    assert paused == {"transcriber_providers_paused{reason=provider_key}": 1}


def test_the_archive_is_not_read_and_the_number_of_queries_is_fixed(now):
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL reads so few rows in a row, whatever indexes there are")
    make_record(State.DONE, now=now)
    with CaptureQueriesContext(connection) as queries:
        read(Queue(lambda: now))

    assert len(queries) == 4
    plans = []
    with connection.cursor() as cursor:
        for query in queries:
            if "audio_records" in query["sql"]:
                cursor.execute("EXPLAIN QUERY PLAN " + query["sql"])
                plans.append(cursor.fetchall()[0][-1])
    assert [re.search(r"audio_records_\w+", plan)[0] for plan in plans] == ["audio_records_standing", "audio_records_due"]


# ---- what was done ------------------------------------------------------------------------------------------------------------------


def test_the_counters_are_the_journal(now):
    record = make_record(now=now)
    for step, outcome, ms in (
        ("poll", "advanced", 80),
        ("poll", "advanced", 20_000),
        ("poll", "failed", 1_000),
        ("submit", "halted", 10**8),
    ):
        event(record, created=now, step=step, outcome=outcome, ms=ms)

    found = read(Journal())

    runs = {name: value for name, value in found.items() if name.startswith("transcriber_step_runs_total") and value}
    assert runs == {
        "transcriber_step_runs_total{outcome=advanced,step=poll}": 2,
        "transcriber_step_runs_total{outcome=failed,step=poll}": 1,
        "transcriber_step_runs_total{outcome=halted,step=submit}": 1,
    }
    for step, count, total in (("poll", 3, 21.08), ("submit", 1, 100_000), ("finish", 0, 0)):
        assert found[f"transcriber_step_duration_seconds_count{{step={step}}}"] == count
        assert found[f"transcriber_step_duration_seconds_sum{{step={step}}}"] == total
    steps = [
        found[f"transcriber_step_duration_seconds_bucket{{le={le},step=poll}}"] for le in ("0.1", "0.5", "1.0", "15.0", "60.0", "+Inf")
    ]
    assert steps == [1, 1, 2, 2, 3, 3]


def test_what_may_come_is_told_as_nothing_beforehand():
    """Else the first failure would be no growth of anything."""
    found = read(Journal())

    assert found["transcriber_step_runs_total{outcome=failed,step=normalize}"] == 0
    assert found["transcriber_acts_total{outcome=resumed}"] == 0
    assert not any(found.values())


def test_the_removal_of_a_record_takes_nothing_from_the_counters(now):
    record = make_record(now=now)
    event(record, created=timezone.now())
    before = read(Journal())

    remove(AudioRecord.objects.all())

    assert not RecordEvent.objects.exists()
    assert read(Journal()) == before


def test_acts_of_people_are_no_runs_of_a_step(clock):
    make_record(now=clock.now)
    control.halt(AudioRecord.objects.all(), by=By(Origin.ADMIN, make_user()), now=clock.now)
    control.resume(AudioRecord.objects.all(), by=By(Origin.COMMAND), now=clock.now)

    assert {name: value for name, value in read(Journal()).items() if value} == {
        "transcriber_acts_total{outcome=halted}": 1,
        "transcriber_acts_total{outcome=resumed}": 1,
    }


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/operations.md", "docs/monitoring/alerts.yml"])
def test_metrics_that_are_named_exist(page, now):
    record = make_record(now=now)
    event(record, created=now)
    event(record, created=now, origin=Origin.ADMIN, outcome=EventOutcome.HALTED)
    ProviderGate.objects.create(provider="speechkit", kind="", paused_until=now, pause_code="provider_key")
    known = {name.partition("{")[0] for name in [*read(Queue(lambda: now)), *read(Journal())]}

    named = set(re.findall(r"\btranscriber_[a-z_]+", (ROOT / page).read_text()))

    assert named
    assert named <= known
    if page.endswith(".md"):
        assert named == known


# ---- who may read -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def configure(monkeypatch):
    def change(**keys):
        config = settings.TRANSCRIBER
        monkeypatch.setattr(settings, "TRANSCRIBER", replace(config, web=replace(config.web, **keys)))

    return change


def test_this_machine_may_and_gets_what_prometheus_reads(client: Client, now):
    make_record(now=timezone.now())

    answer = client.get("/metrics", HTTP_ACCEPT="text/plain;version=0.0.4")

    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    assert parsed(answer.content.decode())["transcriber_records{halt_reason=,state=uploaded}"] == 1


@pytest.mark.parametrize("remote", ["192.0.2.7", "", "unix:"])
def test_others_may_not(client: Client, remote):
    assert client.get("/metrics", REMOTE_ADDR=remote).status_code == 403


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_a_proxy_on_this_machine_that_asks_for_others_may_not(client: Client, header):
    assert client.get("/metrics", headers={header: "192.0.2.7"}).status_code == 403


def test_where_a_proxy_is_configured_nobody_may_without_a_token(client: Client, configure):
    configure(https=True)

    assert client.get("/metrics").status_code == 403


@pytest.mark.parametrize("remote", ["127.0.0.1", "192.0.2.7"])
def test_with_a_token_everybody_needs_it(client: Client, configure, remote):
    configure(metrics_token="s3cret", https=True)

    def status(**headers: str) -> int:
        return client.get("/metrics", REMOTE_ADDR=remote, headers=headers).status_code

    assert status() == 403
    assert status(authorization="Bearer s3cre") == 403
    assert status(authorization="Bearer ключ") == 403
    assert status(authorization="Bearer s3cret", x_forwarded_for="192.0.2.7") == 200


def test_labels_are_words_of_ours(client: Client, now, monkeypatch):
    """No name of a person, no title, no id, no host."""
    record = make_record(now=timezone.now(), owner=make_user("olga"), title="Secret talk")
    event(record, created=timezone.now())
    SeatedWorker.objects.create(cluster=uuid.uuid4(), seat=0, host="machine-7", pid=1, started_at=now, seen_at=timezone.now())

    text = client.get("/metrics").content.decode()

    assert set(re.findall(r"[{,](\w+)=", text)) == {"state", "halt_reason", "step", "outcome", "le"}
    assert not re.search(r"olga|Secret|machine-7|" + str(record.pk), text)


def test_without_the_database_there_are_none_and_nothing_is_told(client: Client, caplog):
    def fails(*_: object) -> None:
        raise OperationalError("the password is hunter2")

    with connection.execute_wrapper(fails):
        answer = client.get("/metrics")

    assert answer.status_code == 503
    assert "hunter2" not in answer.content.decode() + caplog.text
