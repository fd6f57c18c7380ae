"""Sentences of workers, in the language of whoever reads them.

Workers and operations write English into the database (`error_text`, `outcome_text`, `pause_text`): a row has one text, and the log, the
commands and every reader share it. The catalog holds these sentences under a context of their own, those that were filled in as templates
(`The provider takes at most {hours} hours.`). On reading, the sentence is found again and said in the active language. What is found nowhere
(a sentence of a third party's provider, one that was cut to its column) stays as it was written.
"""

from __future__ import annotations

import re
from functools import lru_cache

from django.utils import translation
from django.utils.translation import pgettext_lazy, trans_real

WRITTEN = "written by a worker"
"""The context in the catalog (`make messages` collects the sentences of `records` and `recognition`)."""

_CODES = re.compile(r"((?:[a-z_]+: )*)(.*)", re.DOTALL)
UNITS = {
    "day": pgettext_lazy("unit of time", "day"),
    "days": pgettext_lazy("unit of time", "days"),
    "h": pgettext_lazy("unit of time", "h"),
    "min": pgettext_lazy("unit of time", "min"),
    "s": pgettext_lazy("unit of time", "s"),
}
_UNIT = re.compile(rf"(?<=\d )(?:{'|'.join(UNITS)})\b")
_BETWEEN = re.compile(r"(?<=\.) ")
LONGEST = 3
"""Sentences that the catalog may hold as one."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def translated(text: str) -> str:
    """A text that a worker wrote, in the active language. Codes before it (`rejected: no_audio: …`) stay."""
    language = translation.get_language()
    return text if not text or language is None or language.startswith("en") else _translated(text, language)


@lru_cache(maxsize=2048)
def _translated(text: str, language: str) -> str:
    codes, sentences = _CODES.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches whatever comes
    return codes + _said(sentences, language)


def _said(text: str, language: str) -> str:
    """One sentence after the other: the longest beginning that is known, or else a sentence as it is; then the rest."""
    said = []
    while text:
        ends = [*(space.start() for space in _BETWEEN.finditer(text)), len(text)][:LONGEST]
        found = ((end, known) for end in reversed(ends) if (known := _one(text[:end], language)) is not None)
        end, sentence = next(found, (ends[0], text[: ends[0]]))
        said.append(sentence)
        text = text[end + 1 :]
    return " ".join(said)


def _one(sentence: str, language: str) -> str | None:
    exact, templates = _known(language)
    if sentence in exact:
        return exact[sentence]
    for pattern, template in templates:
        if found := pattern.fullmatch(sentence):
            return template.format(**{name: _UNIT.sub(_unit, value) for name, value in found.groupdict().items()})
    return None


def _unit(written: re.Match[str]) -> str:
    return str(UNITS[written[0]])


@lru_cache(maxsize=8)
def _known(language: str) -> tuple[dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """Whole sentences, and templates with what recognizes them, the longest words first."""
    start = WRITTEN + trans_real.CONTEXT_SEPARATOR
    catalog = trans_real.translation(language)._catalog  # type: ignore[attr-defined]  # as Django's own JavaScriptCatalog reads it
    found = {key.removeprefix(start): said for key, said in catalog.items() if isinstance(key, str) and key.startswith(start)}
    exact: dict[str, str] = {}
    templates: list[tuple[re.Pattern[str], str]] = []
    for written, said in found.items():
        if _PLACEHOLDER.search(written):
            templates.append((_pattern(written), said))
        else:
            exact[written.format()] = said.format()
    return exact, sorted(templates, key=lambda template: -len(template[0].pattern))


def _pattern(template: str) -> re.Pattern[str]:
    """What a filled-in template looks like. A placeholder that comes twice has one value."""
    seen: set[str] = set()
    parts = []
    for number, part in enumerate(_PLACEHOLDER.split(template)):
        if number % 2 == 0:
            parts.append(re.escape(part.format()))
        else:
            parts.append(f"(?P={part})" if part in seen else rf"(?P<{part}>(?:(?!\. ).)*?)")
            seen.add(part)
    return re.compile("".join(parts), re.DOTALL)
