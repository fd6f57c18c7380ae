"""The catalog of messages: what people read here, in English as it stands in the code and in Russian. `make messages` brings it up to date.

Messages are collected from our Python and templates, and from those of other people's that are seen here and that nobody translated. What
workers write into the database is collected as well, under the context WRITTEN (`records.sentences` says why). A message that is new comes
without a translation, and `tests/architecture/test_messages.py` fails until it has one. Needs no programs of gettext.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import django
from babel.messages import Catalog, Message
from babel.messages.extract import extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
PO = ROOT / "transcriber/locale/ru/LC_MESSAGES/django.po"
MO = PO.with_suffix(".mo")

OURS = ("transcriber", "records", "recognition", "topics")
WRITERS = (
    *("records/audio", "records/pipeline", "records/operations/control.py", "records/operations/rebuild.py"),
    *("recognition/bucket.py", "recognition/operations", "recognition/providers", "recognition/registry.py"),
)
"""Where the sentences stand that are written into the database: literals with a full stop at their end, and what goes into the journal."""
OTHERS = (
    "unfold",
    "knox",
    "django_q/admin.py",
    "django_q/models.py",
    "axes",
    "mozilla_django_oidc",
    "drf_standardized_errors",
    "rest_framework",
)
"""What is seen here of other people's. What they, or anybody installed beside them, translated already is not collected."""
UNSEEN = (
    "unfold/contrib/import_export",
    "unfold/contrib/guardian",
    "unfold/contrib/simple_history",
    "unfold/contrib/location_field",
    "unfold/contrib/constance",
    "unfold/contrib/forms",
    "unfold/templates/unfold_crispy",
    "axes/management",
    "axes/migrations",
    "axes/admin.py",
    "axes/models.py",
    "rest_framework/templates",
    "rest_framework/authtoken",
    "rest_framework/filters.py",
    "rest_framework/pagination.py",
    "rest_framework/schemas",
)

KEYWORDS: dict[str, Any] = {
    "_": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
    "npgettext_lazy": ((1, "c"), 2, 3),
}
HEADERS = [
    ("Language", "ru"),
    ("MIME-Version", "1.0"),
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Content-Transfer-Encoding", "8bit"),
    ("Plural-Forms", "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"),
]


class Messages(Catalog):
    """A catalog whose header says what programs need, and neither when nor with what it was written."""

    mime_headers = property(lambda self: HEADERS, lambda self, headers: None)  # type: ignore[assignment]


@dataclass(frozen=True)
class Found:
    """A message where it stands. `plural` is empty for most, and so is `context`."""

    file: str
    text: str
    plural: str = ""
    context: str = ""
    comments: tuple[str, ...] = ()

    @property
    def id(self) -> str | tuple[str, str]:
        return (self.text, self.plural) if self.plural else self.text

    @property
    def key(self) -> tuple[str, str]:
        return self.context, self.text


def collect() -> list[Found]:
    """All that has to be in the catalog, in order of the files. Needs `django.setup()`."""
    ours = [found for app in OURS for path in _files(ROOT / app) for found in messages_of(path, str(path.relative_to(ROOT)))]
    written = [
        found
        for place in WRITERS
        for path in _files(ROOT / place)
        if path.suffix == ".py"
        for found in sentences_of(path, str(path.relative_to(ROOT)))
    ]
    return ours + written + list(_others({found.key for found in ours}))


def _others(known: set[tuple[str, str]]) -> Iterator[Found]:
    for place in OTHERS:
        package, _, rest = place.partition("/")
        spec = find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0])
        for path in _files(folder / rest):
            name = str(path.relative_to(folder.parent))
            if not name.startswith(UNSEEN):
                yield from (found for found in messages_of(path, name) if found.key not in known and not _translated_by_others(found))


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(path for kind in ("*.py", "*.html", "*.txt") for path in place.rglob(kind) if "templates" in path.parts or kind == "*.py")


# ---- where messages stand -----------------------------------------------------------------------------------------------------------


def messages_of(path: Path, name: str) -> Iterator[Found]:
    """The messages that are marked in a Python file or in a template."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        from django.utils.translation.template import templatize

        # What is no message became X, and its margins would be Python's indentation.
        source = "\n".join(line.strip() for line in templatize(source, origin=name).splitlines())
    for _line, function, texts, comments in extract_python(io.BytesIO(source.encode()), KEYWORDS, ["Translators:"], {"encoding": "utf-8"}):
        spec = KEYWORDS[str(function)] or (1,)
        given = list(texts) if isinstance(texts, tuple | list) else [texts]
        context = given.pop(0) if isinstance(spec[0], tuple) else ""
        if given and isinstance(given[0], str) and given[0]:
            plural = given[1] if len(spec) > 1 + bool(context) else ""
            yield Found(name, given[0], plural or "", context or "", tuple(comments))


def sentences_of(path: Path, name: str) -> Iterator[Found]:
    """The sentences that a module writes into the database: literals with a full stop at their end, docstrings and logs apart.

    What an f-string puts in becomes a placeholder, named after what is put in.
    """
    from records.sentences import WRITTEN

    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in ast.walk(node) if value is not node}
    logged = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger.")
        for value in ast.walk(node)
    }
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    journal = {id(value) for node in ast.walk(tree) if _writes_journal(node) for value in ast.walk(node)}
    for node in ast.walk(tree):
        text = template(node)
        if text and id(node) not in inner | logged | docs and (_is_sentence(text) or (id(node) in journal and _has_words(text))):
            yield Found(name, text, context=WRITTEN)


def template(node: ast.AST) -> str:
    """A string literal or an f-string as a template; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("{", "{{").replace("}", "}}")
        case ast.JoinedStr(values=values):
            return "".join(_part(value) for value in values)
    return ""


def _is_sentence(text: str) -> bool:
    return bool(re.search(r"\w .*\.$", text, re.DOTALL))


def _has_words(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]{2,} ", re.sub(r"\{\w+\}", "", text)))


def _writes_journal(node: ast.AST) -> bool:
    return (isinstance(node, ast.Call) and ast.unparse(node.func) == "_journal") or (
        isinstance(node, ast.keyword) and node.arg == "outcome_text"
    )


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value).replace("{", "{{").replace("}", "}}")
    assert isinstance(value, ast.FormattedValue)
    names = [
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(value.value)
        if isinstance(node, ast.Attribute | ast.Name)
    ]
    words = [name for name in names if not name.startswith("_") and name not in ("type", "self")]
    return f"{{{words[0]}}}" if words else "{value}"


def _translated_by_others(found: Found) -> bool:
    """Whether a catalog other than ours has it in Russian."""
    from django.utils.translation import trans_real

    global _without_ours
    if _without_ours is None:
        import gettext

        _without_ours = {}
        for folder in _locale_folders():
            for mo in sorted(folder.glob("ru/LC_MESSAGES/django.mo")):
                with mo.open("rb") as file:
                    _without_ours.update(gettext.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]
    key = f"{found.context}{trans_real.CONTEXT_SEPARATOR}{found.text}" if found.context else found.text
    return (key, 0) in _without_ours if found.plural else key in _without_ours


_without_ours: dict[Any, str] | None = None


def _locale_folders() -> Iterator[Path]:
    from django.apps import apps

    yield Path(django.__file__).parent / "conf/locale"
    for app in apps.get_app_configs():
        if app.name not in OURS:
            yield Path(app.path) / "locale"


# ---- the catalog's files ------------------------------------------------------------------------------------------------------------


def read(po: Path = PO) -> Messages:
    """The catalog as it stands."""
    known = Messages(locale="ru", fuzzy=False)
    if po.exists():
        with po.open("rb") as file:
            read_into = read_po(file, locale="ru")
        for message in read_into:
            if message.id:
                known[message.id] = message
        known.header_comment = read_into.header_comment
    return known


def updated(known: Messages, found: Iterable[Found]) -> Messages:
    """A catalog of what was found, with the translations that are known."""
    fresh = Messages(locale="ru", header_comment=known.header_comment, fuzzy=False)
    for one in found:
        fresh.add(one.id, locations=[(one.file, 0)], auto_comments=one.comments, context=one.context or None)
    for message in fresh:
        before = known.get(message.id, message.context) if message.id else None
        if before is not None and bool(before.pluralizable) == bool(message.pluralizable):
            message.string = before.string
            message.user_comments = before.user_comments
    return fresh


def as_po(catalog: Messages) -> bytes:
    written = io.BytesIO()
    write_po(written, catalog, width=140, sort_output=True, include_lineno=False)
    return b"\n".join(line.rstrip() for line in written.getvalue().splitlines()).rstrip() + b"\n"


def as_mo(catalog: Messages) -> bytes:
    written = io.BytesIO()
    write_mo(written, catalog)
    return written.getvalue()


def untranslated(catalog: Messages) -> list[Message]:
    return [m for m in catalog if m.id and (m.fuzzy or not all(m.string if isinstance(m.string, tuple | list) else [m.string]))]


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "transcriber.settings")
    django.setup()
    catalog = updated(read(), collect())
    PO.parent.mkdir(parents=True, exist_ok=True)
    PO.write_bytes(as_po(catalog))
    MO.write_bytes(as_mo(read()))
    missing = untranslated(catalog)
    print(f"{len(catalog)} messages, {len(missing)} without a translation")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
