"""What docs/monitoring asks Prometheus for is what we export, and Prometheus understands it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from recognition.models import ProviderGate
from records.models import RecordEvent
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_record

pytestmark = pytest.mark.django_db

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
BY_PROMETHEUS = {"instance", "job"}
WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "bool", "offset"}


def dashboard() -> dict:
    return json.loads((FOLDER / "grafana.json").read_text())


def shown() -> Iterator[tuple[str, str]]:
    """Expression and legend of everything on the dashboard."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def rules() -> Iterator[tuple[str, str]]:
    """Expression and sentence of each alert. The file is ours and plain enough to be read by lines."""
    text = re.sub(r"(?m)^\s*#.*$", "", (FOLDER / "alerts.yml").read_text())
    for rule in text.split("- alert:")[1:]:
        written = re.search(r"expr:(.*?)\n\s+(?:for|labels):", rule, re.DOTALL)
        assert written, rule
        summary = re.search(r'summary: "(.*)"', rule)
        assert summary, rule
        yield " ".join(written[1].replace(">\n", " ").split()), summary[1]


@pytest.fixture
def exported(client: Client, now) -> dict[str, set[str]]:
    """Metric → its labels, of a real scrape where everything has happened once."""
    record = make_record(State.UPLOADED, now=now, halted_at=now, halt_reason=HaltReason.STUCK)
    for outcome, origin in ((EventOutcome.FAILED, Origin.WORKER), (EventOutcome.RESUMED, Origin.ADMIN)):
        RecordEvent.objects.create(record=record, step="normalize", outcome=outcome, origin=origin, duration_ms=1)
    ProviderGate.objects.create(provider="speechkit", kind="", paused_until=now, pause_code="provider_key")
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(client.get("/metrics").content.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric that an expression names, and the labels it selects by."""
    for name, braces in re.findall(r"\b(up|transcriber_\w+)\b(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces))


def groupings(expression: str) -> set[str]:
    return {label for names in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression) for label in re.findall(r"\w+", names)}


@pytest.mark.parametrize("expressions", [shown, rules])
def test_metrics_and_labels_are_those_we_export(expressions, exported):
    asked = list(expressions())
    assert len(asked) >= 7
    for expression, words in asked:
        of_all: set[str] = set()
        found = list(selectors(expression))
        assert found, expression
        for name, labels in found:
            assert name in exported, expression
            assert labels <= exported[name] | BY_PROMETHEUS, expression
            of_all |= exported[name]
        assert groupings(expression) <= of_all, expression
        told = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", words)) - {"value"}
        kept = groupings(expression) if re.search(r"\b(?:max|sum)\b", expression) else of_all | BY_PROMETHEUS
        assert told <= kept, f"{words!r} tells what {expression!r} does not keep"


def test_label_values_are_words_of_ours():
    known = {*State.values, *HaltReason.values, *EventOutcome.values, "normalize", "submit", "poll", "finish", "transcriber", ""}
    for expression, _ in [*shown(), *rules()]:
        for value in re.findall(r'=~?\s*"([^"]*)"', expression):
            assert set(value.split("|")) <= known, expression


def test_everything_that_is_exported_is_shown(exported):
    named = {name for expression, _ in shown() for name, _ in selectors(expression)}
    families = {re.sub(r"_(sum|count|bucket)$", "", name) for name in exported if not name.endswith("_created")} - {"up"}

    assert {re.sub(r"_(sum|count|bucket)$", "", name) for name in named} == families


def test_several_web_servers_are_not_added_up():
    """Each tells the same, so every metric is taken by max before anything else is done with it."""
    for expression, _ in [*shown(), *rules()]:
        for name, _ in selectors(expression):
            if name != "up":
                inner = r"\bmax(?: by \([^)]*\))? ?\((?:rate\(|increase\()?" + name
                assert len(re.findall(inner + r"\b", expression)) == len(re.findall(rf"\b{name}\b", expression)), expression


def test_the_dashboard_can_be_imported():
    board = dashboard()
    panels = board["panels"]

    assert board["uid"] == "transcriber"
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert {target["datasource"]["uid"] for panel in panels for target in panel["targets"]} == {"${datasource}"}
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


def test_prometheus_understands_all_of_it(tmp_path: Path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (package prometheus) is not installed")
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for number, (expression, _) in enumerate(shown()):
        lines += [f"      - record: shown:{number}", f"        expr: {json.dumps(expression.replace('$__rate_interval', '5m'))}"]
    written = tmp_path / "dashboard.yml"
    written.write_text("\n".join(lines) + "\n")

    for rules_file in (written, FOLDER / "alerts.yml"):
        done = subprocess.run([promtool, "check", "rules", str(rules_file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
