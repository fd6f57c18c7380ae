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
from html.parser import HTMLParser
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


# ---- what is not marked -------------------------------------------------------------------------------------------------------------

NO_WORDS = ("script", "style", "code", "pre", "kbd", "svg", "title")
SAID_ATTRIBUTES = ("title", "alt", "placeholder", "aria-label", "aria-description", "data-label", "label", "content")
SAID_ARGUMENTS = ("description", "label", "title", "help_text", "verbose_name", "verbose_name_plural", "empty_value")
NAMES = re.compile(
    r"\b(Transcriber|Ogg|Opus|JSON|SRT|VTT|TXT|API|ID|txt|srt|vtt|json|manage\.py|make|curl|width|device|initial|scale|utf-8)\b"
)
"""What is the same in every language."""


class _Said(HTMLParser):
    """Collects the words of a page that stand outside of tags of the template language."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind, classes = dict(attrs).get("type"), (dict(attrs).get("class") or "").split()
        if tag in NO_WORDS or "material-symbols-outlined" in classes:  # names of icons
            self._silent.append(tag)
        for name, value in attrs:
            if name in SAID_ATTRIBUTES or (name == "value" and kind in ("submit", "button")):
                self.take(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            self._silent.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.take(data)

    def take(self, text: str) -> None:
        if re.search(r"[A-Za-z]{2,}", NAMES.sub("", text)):
            self.words.append(" ".join(text.split()))


def unmarked_in_template(path: Path) -> list[str]:
    """The words in a template that a person reads and nobody can translate."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\{%\s*(comment)\b.*?end\1\s*%\}|\{%\s*(blocktrans(?:late)?)\b.*?end\2\s*%\}|\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\{%\s*block (?:body|html)\w*\s*%\}.*?\{%\s*endblock.*?%\}", "", text)  # names of classes
    said = _Said()
    said.feed(re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", text, flags=re.DOTALL))
    said.close()
    return said.words


def unmarked_in_admin(path: Path) -> list[str]:
    """The literals that the Python of the admin gives to people as they are: names of things, and messages."""
    words = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg in SAID_ARGUMENTS]
        if ast.unparse(node.func).endswith("message_user"):
            given += node.args[1:2]
        words += [text for value in given if re.search(r"[A-Za-z]{2,}", NAMES.sub("", text := template(value)))]
    return words


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


def problems(catalog: Messages, found: Iterable[Found]) -> list[str]:
    """What is wrong with a catalog for these messages, one line each; empty if nothing is."""
    wanted = {one.key: one for one in found}
    there = {(message.context or "", _first(message.id)): message for message in catalog if message.id}
    said = [f"not in the catalog: {one.text!r} ({one.file})" for key, one in wanted.items() if key not in there]
    said += [f"nobody says it any more: {text!r}" for _context, text in there.keys() - wanted.keys()]
    for message in there.values():
        ways, name = _ways(message), repr(_first(message.id))
        if len(ways) != (catalog.num_plurals if isinstance(message.id, tuple | list) else 1) or not all(ways):
            said.append(f"not translated: {name}")
        elif message.fuzzy:
            said.append(f"fuzzy: {name}")
        elif any(_placeholders(way) != _placeholders(_last(message.id)) for way in ways):
            said.append(f"other placeholders: {name}")
    return sorted(said)


def _first(text: Any) -> str:
    return str(text[0] if isinstance(text, tuple | list) else text)


def _last(text: Any) -> str:
    return str(text[-1] if isinstance(text, tuple | list) else text)


def _ways(message: Message) -> list[str]:
    """The translation; of a number of things, for every number."""
    return list(message.string) if isinstance(message.string, tuple | list) else [message.string]


def _placeholders(text: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)[a-z]|%[sd%]|\{\w*(?::\w+)?\}|</?\w+", text))


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "transcriber.settings")
    django.setup()
    found = collect()
    catalog = updated(read(), found)
    PO.parent.mkdir(parents=True, exist_ok=True)
    PO.write_bytes(as_po(catalog))
    MO.write_bytes(as_mo(read()))
    print("\n".join(wrong := problems(catalog, found)) or f"{len(catalog)} messages, all in Russian")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
