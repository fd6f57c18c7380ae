"""The walk of an operator, from a home page that says what stands to 200 finished records. `make screenshots` takes the same walk for the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.browser import chromium
from tests.acceptance.conftest import MakeService
from tests.acceptance.walk import RECORDS, Walk

pytestmark = [pytest.mark.processes, pytest.mark.no_database]


@pytest.mark.timeout(900)
def test_what_stands_is_found_in_two_clicks_resumed_at_once_and_finishes(make_service: MakeService, tmp_path: Path) -> None:
    with chromium() as browser:
        service = make_service(TRANSCRIBER_PIPELINE_WORKERS="2")
        walk = Walk(service, browser, tmp_path / "pictures")
        walk.prepare()
        service.start("serve")
        walk.take()

    assert service.states() == {"done": RECORDS}
    resumed = service.database.query(
        "SELECT count(*), count(DISTINCT record_id), count(actor_id) FROM record_events WHERE outcome = 'resumed'"
    )
    assert resumed == [(60, 60, 60)]
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 12
