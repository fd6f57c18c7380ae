"""What Prometheus reads of two clusters that share the work, each with a web server of its own."""

from __future__ import annotations

from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.processes

Counters = dict[tuple[str, ...], float]

JOURNAL = "SELECT step, outcome, count(*) FROM record_events WHERE origin = 'worker' GROUP BY step, outcome"
ACTS = "SELECT outcome, count(*) FROM record_events WHERE origin <> 'worker' GROUP BY outcome"
LASTED = "SELECT step, count(*), sum(duration_ms) FROM record_events WHERE origin = 'worker' GROUP BY step"

RUINED = """
import django
django.setup()
from django.utils import timezone
from tests.factories import make_record
for _ in range(3):
    make_record(now=timezone.now(), contents=b"no sound")
"""
REMOVE_DONE = """
import django
django.setup()
from records.models import AudioRecord
from records.operations.removal import remove
print(remove(AudioRecord.objects.filter(state="done")))
"""


@pytest.fixture
def hosts(make_service: MakeService) -> list[Service]:
    """Two services with one database and one storage, as on two machines."""
    shared = {"TRANSCRIBER_SECRET_KEY": "one for both", "QUICK_SECONDS": "0.3"}
    first = make_service(**shared)
    url = first.database.url or f"sqlite:///{first.database.path}"
    second = make_service(**shared, DATABASE_URL=url)
    media = first.data / "media"
    media.mkdir()
    (second.data / "media").symlink_to(media)
    return [first, second]


def scrape(service: Service) -> dict[str, Counters]:
    """Metric name → values of its labels (without the bucket's bound) → value."""
    found: dict[str, Counters] = {}
    with urlopen(f"{service.url}/metrics", timeout=30) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                if "le" not in sample.labels:
                    labels = tuple(sample.labels[name] for name in ("step", "outcome", "state", "halt_reason") if name in sample.labels)
                    found.setdefault(sample.name, {})[labels] = sample.value
    return found


def together(hosts: list[Service], name: str) -> Counters:
    """As docs/operations.md tells to: the greatest of what the hosts tell. Zeros are left out."""
    of_all = [scrape(host)[name] for host in hosts]
    return {labels: value for labels in of_all[0] if (value := max(found[labels] for found in of_all))}


def counters(hosts: list[Service]) -> dict[str, Counters]:
    names = (
        "transcriber_step_runs_total",
        "transcriber_acts_total",
        "transcriber_step_duration_seconds_count",
        "transcriber_step_duration_seconds_sum",
    )
    return {name: together(hosts, name) for name in names}


def journal(service: Service) -> dict[str, Counters]:
    query = service.database.query
    lasted = query(LASTED)
    return {
        "transcriber_step_runs_total": {(step, outcome): number for step, outcome, number in query(JOURNAL)},
        "transcriber_acts_total": {(outcome,): number for outcome, number in query(ACTS)},
        "transcriber_step_duration_seconds_count": {(step,): number for step, number, _ in lasted},
        "transcriber_step_duration_seconds_sum": {(step,): pytest.approx(int(total) / 1000) for step, _, total in lasted if total},  # type: ignore[misc]  # equals a float nearly
    }


def test_counters_of_two_clusters_are_the_journal(hosts: list[Service]) -> None:
    first, second = hosts
    for host in hosts:
        host.start("serve", TRANSCRIBER_PIPELINE_WORKERS="2")
    first.run("-c", RUINED)

    def both_have_finished_some() -> bool:
        """Who takes a record is chance; with a few more each time, both have had some sooner or later."""
        first.put(6)
        return all("transcribed → done" in host.new_log() for host in hosts)

    wait_for(both_have_finished_some, within=120)
    wait_for(lambda: rejected(first) == 3 == sum(state != "done" for state, _, _ in first.records()), within=120)
    second.manage("resume_records", "--reason", "rejected")
    wait_for(lambda: rejected(first) == 3, within=60)

    # Everything stands still now, so that journal and scrapes can be compared.
    told = counters(hosts)
    assert told == journal(first)
    assert told["transcriber_step_runs_total"]["normalize", "halted"] == 6
    assert told["transcriber_acts_total"] == {("resumed",): 3}
    assert scrape(first)["transcriber_step_runs_total"] == scrape(second)["transcriber_step_runs_total"]
    assert together(hosts, "transcriber_records") == {("uploaded", "rejected"): 3}
    wait_for(lambda: together(hosts, "transcriber_workers") == {(): 4}, within=60)

    # Nothing falls where records go, in any process, nor in one that starts afterwards.
    assert int(second.run("-c", REMOVE_DONE).stdout) >= 6
    assert journal(first) != told
    assert counters(hosts) == told
    second.stop()
    second.start("serve", TRANSCRIBER_PIPELINE_WORKERS="0")
    assert counters([second]) == told
    for host in hosts:
        host.stop()


def rejected(service: Service) -> int:
    return len(service.database.query("SELECT 1 FROM audio_records WHERE halt_reason = 'rejected'"))
