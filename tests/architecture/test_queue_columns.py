"""Outside the queue's own modules nothing assigns or updates a queue column."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from pathlib import Path

import pytest
from django.apps import apps

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("transcriber", "records", "recognition", "topics")
WRITERS = {
    "records/pipeline/acquire.py",
    "records/pipeline/heartbeat.py",
    "records/pipeline/transitions.py",
    "records/operations/control.py",
}
COLUMNS = {
    "state",
    "state_entered_at",
    "work_started_at",
    "halted_at",
    "halt_reason",
    "error_code",
    "error_text",
    "acquisition_id",
    "acquire_expires_at",
    "delay_time",
    "attempts",
    "progress",
}
MODEL = "records/models/audio_record.py"
UPDATES = ("update", "aupdate", "update_or_create", "bulk_update", "bulk_create", "save", "asave", "_write", "_hold")
SQL = re.compile(r"\b(UPDATE\s+\"?|INTO\s+\"?)audio_records\b", re.IGNORECASE)

pytestmark = pytest.mark.no_database


def writes(source: str, *, is_model: bool = False, columns: Set[str] = frozenset(COLUMNS)) -> Iterator[tuple[int, str]]:
    """Line and column of each place that changes a queue column of an existing record. What makes a record may say how it begins."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=targets):
                yield from assigned(targets, is_model)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield from assigned([target], is_model)
            case ast.Call(func=ast.Name("setattr"), args=[_, ast.Constant(value=str(column)), _]) if column in COLUMNS:
                yield node.lineno, column
            case ast.Call(func=ast.Attribute(attr=method) | ast.Name(id=method)) if method in UPDATES:
                yield from ((node.lineno, name) for name in named(node) if name in columns)
            case ast.Constant(value=str(text)) if SQL.search(text):
                yield node.lineno, "SQL"


def assigned(targets: list[ast.expr], is_model: bool) -> Iterator[tuple[int, str]]:
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and part.attr in COLUMNS:
                own = isinstance(part.value, ast.Name) and part.value.id == "self"
                if is_model or not own:  # an object's own attribute may be called so
                    yield part.lineno, part.attr


def named(call: ast.Call) -> Iterator[str]:
    """Keywords of a call, keys of the dictionaries and texts of the lists it is given."""
    for keyword in call.keywords:
        if keyword.arg and keyword.arg not in ("update_fields", "fields", "defaults", "create_defaults"):
            yield keyword.arg
            continue
        yield from constants(keyword.value)
    for argument in call.args:
        yield from constants(argument)


def constants(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.Dict(keys=keys):
                yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                yield from (item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))


def modules() -> list[str]:
    paths = (path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return sorted(str(path) for path in paths if "migrations" not in path.parts)


def columns_in(module: str) -> Set[str]:
    """In apps that know no record, a column of a table of their own may have the same name."""
    app = module.partition("/")[0]
    own = apps.get_app_config(app).get_models() if app in ("recognition", "topics") else ()
    return COLUMNS - {field.name for model in own for field in model._meta.get_fields()}


@pytest.mark.parametrize("module", [module for module in modules() if module not in WRITERS])
def test_no_other_module_writes_a_queue_column(module: str) -> None:
    assert list(writes((ROOT / module).read_text(), is_model=module == MODEL, columns=columns_in(module))) == []


@pytest.mark.parametrize("module", sorted(WRITERS))
def test_the_writers_are_where_they_are_said_to_be(module: str) -> None:
    assert (ROOT / module).is_file()


def test_the_writers_are_seen_to_write() -> None:
    assert {column for module in WRITERS for _, column in writes((ROOT / module).read_text())} & COLUMNS >= {
        "state",
        "progress",
        "attempts",
    }


@pytest.mark.parametrize(
    "planted",
    [
        "record.state = 'done'",
        "record.attempts += 1",
        "record.title, record.progress = '', 1",
        "setattr(record, 'delay_time', now)",
        "records.update(title='', halted_at=None)",
        "records.update(**{'error_text': ''})",
        "AudioRecord.objects.update_or_create(pk=1, defaults={'halt_reason': ''})",
        "AudioRecord.objects.bulk_update(rows, ['acquisition_id'])",
        "record.save(update_fields=['work_started_at'])",
        "cursor.execute('update audio_records set x = 1')",
    ],
)
def test_a_planted_write_is_seen(planted: str) -> None:
    assert list(writes(planted))


@pytest.mark.parametrize(
    "innocent",
    [
        "AudioRecord.objects.create(state='uploaded', delay_time=now)",
        "records.filter(state='done').update(title='')",
        "seen = record.progress",
    ],
)
def test_reading_and_making_are_no_writes(innocent: str) -> None:
    assert list(writes(innocent)) == []


def test_a_method_of_the_model_that_writes_is_seen() -> None:
    assert list(writes("self.state = 'done'", is_model=True))
    assert not list(writes("self.progress = 0.5"))
