"""What the documentation says can be checked in many places; there it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import get_commands
from django.db.models import Model

from records.pipeline.stages import STAGES
from records.states import HaltReason
from transcriber.config import ENVIRONMENT_ONLY, SECTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
OURS = ("records", "recognition", "topics", "signin")

pytestmark = pytest.mark.no_database


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code(text: str) -> str:
    """What stands in code, in blocks or in the line; drawings are none."""
    blocks = [block for language, block in FENCED.findall(text) if language != "mermaid"]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", FENCED.sub("", text))])


@pytest.fixture(params=PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_links_lead_somewhere(path: Path) -> None:
    text = FENCED.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        assert found.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(found.read_text()), f"{target}: no such heading"


def anchors(text: str) -> set[str]:
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", code(path.read_text()))) <= targets


def test_commands_of_manage_py_exist(path: Path) -> None:
    assert set(re.findall(r"manage\.py ([a-z_]+)", path.read_text())) <= set(get_commands())


def test_variables_of_the_environment_exist(path: Path) -> None:
    known = set(ENVIRONMENT_ONLY) | {
        f"TRANSCRIBER_{name}_{key.name}".upper() for name, section in SECTIONS.items() for key in fields(section)
    }
    assert set(re.findall(r"\bTRANSCRIBER_[A-Z_]*[A-Z]\b", path.read_text())) <= known


def test_modules_that_are_named_exist(path: Path) -> None:
    for name in re.findall(r"\b(?:transcriber|records|recognition|topics|tests)/[\w/]+\.py\b", path.read_text()):
        assert (ROOT / name).is_file(), name


# ---- the pipeline -------------------------------------------------------------------------------------------------------------------


def test_the_graph_is_the_stage_table() -> None:
    assert f"```mermaid\n{STAGES.graph()}```" in page("docs/pipeline.md")


def test_each_stage_and_each_reason_to_halt_is_explained() -> None:
    text = page("docs/pipeline.md")
    for stage in STAGES:
        assert re.search(
            rf"^\| `{stage.state.value}` \| `{stage.name}` \| `{stage.leads_to.value}` \| {stage.work.value} \|", text, re.MULTILINE
        )
    assert set(re.findall(r"^\| `(\w+)` \| halts", text, re.MULTILINE)) == set(HaltReason.values)


# ---- the database -------------------------------------------------------------------------------------------------------------------


def sections(text: str) -> dict[str, str]:
    """Heading → what stands below it."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def tables() -> Iterator[type[Model]]:
    for app in OURS:
        yield from apps.get_app_config(app).get_models(include_auto_created=True)


@pytest.mark.parametrize("model", list(tables()), ids=lambda model: model._meta.db_table)
def test_every_table_and_column_is_described_and_none_that_is_not(model: type[Model]) -> None:
    described = sections(page("docs/database.md")).get(f"`{model._meta.db_table}`")
    assert described is not None, f"docs/database.md does not describe {model._meta.db_table}"
    assert set(re.findall(r"^\| `(\w+)`", described, re.MULTILINE)) == {field.column for field in model._meta.local_concrete_fields}


def test_no_table_is_described_that_is_not_there() -> None:
    described = {heading.strip("`") for heading in sections(page("docs/database.md")) if heading.startswith("`")}
    assert described == {model._meta.db_table for model in tables()}


def test_constraints_that_are_named_exist_and_all_are_named() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^Held by the database: .*?$", page("docs/database.md"), re.MULTILINE))))
    assert named == {constraint.name for model in tables() for constraint in model._meta.constraints}


def test_each_limit_stands_with_its_default() -> None:
    text = page("docs/database.md")
    for name, section in SECTIONS.items():
        if name not in ("pipeline", "intake"):
            continue
        for key in fields(section):
            assert f"| `[{name}] {key.name}` | `{key.metadata['written']}` |" in text
