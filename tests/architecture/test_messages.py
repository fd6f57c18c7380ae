"""Whatever people read here is there in Russian as well, and nothing is kept for translation that nobody says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib import admin
from django.utils import translation

from records.admin import words
from records.sentences import UNITS, WRITTEN, translated
from records.states import EventOutcome, HaltReason, Origin, State
from tests import messages
from tests.messages import OURS, ROOT, WRITERS, Found

pytestmark = pytest.mark.no_database

CYRILLIC = re.compile(r"[а-яё]", re.IGNORECASE)
LATIN = re.compile(r"[A-Za-z]{2,}")
TEMPLATES = sorted(path for app in OURS for path in (ROOT / app).rglob("*.html"))
SPEAKING = sorted(
    [*(ROOT / "records/admin").glob("*.py"), *(ROOT / "transcriber").glob("*.py"), *(ROOT / "transcriber/signin").glob("*.py")]
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def found() -> list[Found]:
    return messages.collect()


# ---- the catalog ----------------------------------------------------------------------------------------------------------------------


def test_the_catalog_has_every_message_and_none_too_many(found):
    wrong = messages.problems(messages.read(), found)

    assert not wrong, "`make messages` collects what is new; then say it in transcriber/locale/ru/LC_MESSAGES/django.po:\n" + "\n".join(
        wrong
    )


def test_the_compiled_catalog_is_the_written_one():
    assert messages.as_mo(messages.read()) == messages.MO.read_bytes(), "run `make messages`"


def test_writing_the_catalog_again_changes_nothing():
    """Sorted, and without anything of the day or the machine."""
    written = messages.PO.read_bytes()

    assert messages.as_po(messages.read()) == written
    for line in written.decode().splitlines():
        assert not re.search(r"-Date:|/home/|/root/|site-packages|Babel|POT-|Last-Translator|^#:.*:\d", line), line


def test_it_sees_what_is_wrong(tmp_path):
    """A message that nobody has translated, one that is no longer said, a lost placeholder, a missing plural, one that is only guessed."""
    page = tmp_path / "page.html"
    page.write_text(
        '{% load i18n %}{% translate "Planted one" %}{% blocktranslate count n=2 trimmed %}\n  {{ n }} planted\n{% plural %}\n  {{ n }} planteds\n'
        '{% endblocktranslate %}<p title="{% translate "Planted two" context "of a page" %}">{{ _("Planted three") }}</p>'
    )
    module = tmp_path / "module.py"
    module.write_text(
        "from django.utils.translation import gettext as _, ngettext\n"
        "_('Planted %(word)s')\nngettext('%(n)d plant', '%(n)d plants', 2)\n_('Planted guess')\nx = _(unknown)\n"
    )
    planted = [*messages.messages_of(page, "page.html"), *messages.messages_of(module, "module.py")]
    assert {(one.context, one.text, one.plural) for one in planted} == {
        ("", "Planted one", ""),
        ("", "%(n)s planted", "%(n)s planteds"),
        ("of a page", "Planted two", ""),
        ("", "Planted three", ""),
        ("", "Planted %(word)s", ""),
        ("", "%(n)d plant", "%(n)d plants"),
        ("", "Planted guess", ""),
    }

    catalog = messages.updated(messages.Messages(locale="ru", fuzzy=False), planted)
    catalog.get("Planted three").string = "Посажено три"
    catalog.get("Planted %(word)s").string = "Посажено"
    catalog.get("%(n)d plant").string = ("%(n)d росток", "%(n)d ростка", "")
    catalog.get("Planted guess").string = "Посаженная догадка"
    catalog.get("Planted guess").flags.add("fuzzy")
    catalog.add("Planted long ago", "Посажено давно")
    catalog.delete("Planted one")

    assert messages.problems(catalog, planted) == [
        "fuzzy: 'Planted guess'",
        "nobody says it any more: 'Planted long ago'",
        "not in the catalog: 'Planted one' (page.html)",
        "not translated: '%(n)d plant'",
        "not translated: '%(n)s planted'",
        "not translated: 'Planted two'",
        "other placeholders: 'Planted %(word)s'",
    ]


# ---- what is not marked ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_a_template_says_nothing_that_nobody_can_translate(path):
    assert messages.unmarked_in_template(path) == []


@pytest.mark.parametrize("path", SPEAKING, ids=name_of)
def test_the_admin_names_nothing_that_nobody_can_translate(path):
    assert messages.unmarked_in_admin(path) == []


def test_it_sees_words_that_are_not_marked(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '{% load i18n %}{# A note #}<p class="quiet" title="Planted title">{% translate "Marked" %} Planted {{ number }} words</p><code>code</code>'
        '{% blocktranslate %}Marked as well{% endblocktranslate %}<script>let none = "of it";</script><input type="submit" value="Planted button">'
        '{% comment %}Nor this{% endcomment %}<a href="{% url "x" %}">Transcriber</a><button aria-label="{% translate "Marked" %}">×</button>'
    )
    module = tmp_path / "module.py"
    module.write_text(
        'x(description="Planted", other="Not said")\nself.message_user(request, f"Planted {word}")\ny(label=_("Marked"), title="—")\n'
    )

    assert messages.unmarked_in_template(page) == ["Planted title", "Planted words", "Planted button"]
    assert messages.unmarked_in_admin(module) == ["Planted", "Planted {word}"]


REFUSALS = (
    "Refusal",
    "conflict",
    "invalid",
    "_malformed",
    "ErrorDetail",
    "ParseError",
    "NotFound",
    "AuthenticationFailed",
    "PermissionDenied",
)


def calls(path: Path, names: tuple[str, ...]) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names:
            yield node


@pytest.mark.parametrize("path", sorted([*(ROOT / "records/api").glob("*.py"), *(ROOT / "topics/api").glob("*.py")]), ids=name_of)
def test_every_refusal_of_the_api_is_marked(path):
    """Codes have no blank; whatever has one is a sentence."""
    bare = [text for call in calls(path, REFUSALS) for given in call.args if " " in (text := messages.template(given))]
    assert bare == []


# ---- what workers write ---------------------------------------------------------------------------------------------------------------

ERRORS = (
    "Refused",
    "Transient",
    "NotAccepted",
    "Busy",
    "Misconfigured",
    "OutcomeUnknown",
    "StreamError",
    "Halt",
    "Wait",
    "_fail",
    "_unclear",
)


def test_a_worker_writes_no_sentence_that_is_not_collected(found):
    known = {one.text for one in found if one.context == WRITTEN}
    files = [path for place in WRITERS for path in ([ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py")))]
    given = [
        messages.template(value)
        for path in files
        for call in calls(path, ERRORS)
        for value in [*call.args, *(k.value for k in call.keywords)]
    ]
    sentences = [text for text in given if " " in text and LATIN.search(re.sub(r"\{\w+\}", "", text))]

    assert len(sentences) > 40
    assert [text for text in sentences if text not in known] == []


def test_every_sentence_of_a_worker_is_read_in_russian(found):
    """Filled in as a worker would, alone, behind its code, and with others around it."""
    sentences = [one.text for one in found if one.context == WRITTEN]
    assert len(sentences) > 80
    for sentence in sentences:
        values = {name: f"X{number}" for number, name in enumerate(re.findall(r"\{(\w+)\}", sentence))}
        written = sentence.format(**values)
        with translation.override("ru"):
            said = translated(written)
            assert translated(f"rejected: some_code: {written}") == f"rejected: some_code: {said}"
            if written.endswith("."):
                assert translated(f"{written} Tried 8 times.") == f"{said} Попыток: 8."
                assert translated(f"Waited for the provider longer than 1:00:00. {written}").endswith(f" {said}")
        assert CYRILLIC.search(said), written
        assert said != written
        assert all(value in said for value in values.values()), said
        with translation.override("en"):
            assert translated(written) == written


# ---- names ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [State, HaltReason, Origin, EventOutcome])
def test_the_words_of_the_queue_have_names(kind):
    with translation.override("ru"):
        labels = [str(label) for label in kind.labels]
    assert [label for label in labels if LATIN.search(label)] == [label for label in labels if label in ("API", "Telegram")]
    assert len(set(labels)) == len(labels)


def test_steps_and_units_have_names():
    with translation.override("ru"):
        assert not [str(name) for name in [*words.STEPS.values(), *UNITS.values()] if not CYRILLIC.search(str(name))]


def test_what_the_admin_shows_has_names():
    with translation.override("ru"):
        shown = {model: [model._meta.verbose_name, model._meta.verbose_name_plural] for model in admin.site._registry}
        foreign = [f"{model.__name__}: {name}" for model, names in shown.items() for name in names if not CYRILLIC.search(str(name))]
    assert foreign == []
