"""The workers of real clusters, as the database knows them."""

from __future__ import annotations

import pytest

from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.processes


def test_the_database_knows_who_sits_in_the_seats_also_after_a_death(service: Service) -> None:
    service.start("qcluster", TRANSCRIBER_PIPELINE_WORKERS="2")

    def is_known() -> bool:
        sitting = sorted(process.pid for process in service.named("q-seat"))
        return len(sitting) == 2 and [row[0] for row in service.database.query("SELECT pid FROM workers ORDER BY pid")] == sitting

    wait_for(is_known, within=20)
    former = service.named("q-seat-0")[0]
    former.kill()

    wait_for(lambda: former.pid not in [process.pid for process in service.named("q-seat")] and is_known(), within=20)
    service.stop()
    assert service.status == 0
