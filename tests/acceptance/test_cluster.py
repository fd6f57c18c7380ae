"""The cluster's real processes: the pipeline runs in them, with any number of workers."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("workers", [1, 4])
def test_fifty_recordings_go_through(make_service: MakeService, workers: int) -> None:
    service = make_service(TRANSCRIBER_PIPELINE_WORKERS=str(workers))
    service.put(50)

    service.start("qcluster")
    assert len(service.named("q-seat")) == workers
    wait_for(lambda: service.states() == {"done": 50}, within=120)
    service.stop()

    assert service.status == 0
    assert Counter(service.events()) == {
        ("normalize", "advanced", "uploaded → normalized"): 50,
        ("submit", "advanced", "normalized → submitted"): 50,
        ("poll", "advanced", "submitted → transcribed"): 50,
        ("finish", "advanced", "transcribed → done"): 50,
    }
    per_record = service.database.query(
        "SELECT (SELECT count(*) FROM files AS f WHERE f.id IN (r.original_file_id, r.normalized_file_id)),"
        " (SELECT count(*) FROM recognitions WHERE record_id = r.id), (SELECT contents FROM texts WHERE id = r.transcript_text_id)"
        " FROM audio_records AS r"
    )
    assert per_record == [(2, 1, "Quick.")] * 50
    assert service.database.query("SELECT count(*) FROM django_q_task") == [(0,)]


def test_without_workers_recordings_stand_still_until_there_are_some(service: Service) -> None:
    service.put(10)

    service.start("qcluster", TRANSCRIBER_PIPELINE_WORKERS="0")
    assert not service.named("q-seat")
    assert service.states() == {"uploaded": 10}
    service.stop()

    service.start("qcluster", TRANSCRIBER_PIPELINE_WORKERS="2")
    wait_for(lambda: service.states() == {"done": 10}, within=60)
