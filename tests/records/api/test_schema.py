"""The specification is complete, valid and true."""

from __future__ import annotations

import re

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from records.states import State
from tests.factories import make_record
from tests.records.api.conftest import body_of
from tests.records.api.forms import RECORDS
from tests.records.api.test_errors import OF_A_PERSON, OF_A_RECORD, ROUTES

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "schema.yml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(path))
    return yaml.safe_load(path.read_text())


def test_every_call_is_specified(schema):
    written = {path: {method for method in methods if method != "parameters"} for path, methods in schema["paths"].items()}
    expected = {
        re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route).replace("{pk}", "{id}"): set(allowed) - {"head"}
        for route, name in ROUTES.items()
        if (allowed := (OF_A_RECORD | OF_A_PERSON).get(name))
    }
    assert written == expected


def test_every_error_has_the_one_shape(schema):
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            errors = {code: answer for code, answer in call["responses"].items() if code >= "400"}
            assert {"401", "500"} <= set(errors), (path, method)
            assert ("404" in errors) or "{id}" not in path
            for answer in errors.values():
                assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}, (path, method)


def test_a_record_looks_as_it_is_specified(schema, api, anna, now):
    make_record(owner=anna, now=now)
    make_record(State.DONE, owner=anna, now=now)
    specified = schema["components"]["schemas"]

    for row in api.get(RECORDS).json()["results"]:
        assert set(row) == set(specified["Record"]["properties"]) == set(specified["Record"]["required"])
        assert set(row["files"]) == set(specified["Files"]["properties"])
        assert set(row["files"]["original"]) == set(specified["File"]["properties"])
        assert set(row["links"]) == set(specified["Links"]["properties"])


def test_the_page_needs_nothing_from_elsewhere(client: Client):
    page = client.get("/api/v1/docs/")

    assert page.status_code == 200
    html = page.content.decode()
    assert not re.search(r"https?://(?!testserver/)", html)
    assets = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert any(asset.endswith(".js") for asset in assets)
    for asset in assets:
        assert asset.startswith("/static/"), asset
        answer = client.get(asset)
        assert (answer.status_code, len(body_of(answer)) > 500) == (200, True), asset
    assert client.get("/api/v1/schema/").status_code == 200
