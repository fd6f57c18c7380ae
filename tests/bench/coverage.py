"""What the local engine loses, invents and misplaces: speech with known words at known places, among silence, pauses, noise and other voices.

`coverage` takes some ten minutes of one core, `coverage:long` about an hour; `coverage:wav` leaves out the service's own normalization.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recognition.contract import Word
from recognition.providers.whisper import WhisperProvider
from records import audio
from tests.audio import RATE
from tests.recognition.providers.whisper_engine import DEMO, DEMO_TEXT, SHARED, Watching, attempt, opened
from tests.speech import Spoken, join, read, say, silence, why_not, write

NEAR_S = 0.5
"""A word so far from everything that was said is invented."""

REACH_S = 0.2
"""A word that was said is covered if the middle of it is so near to one that was recognized, whichever that is."""

SAID = {
    "en": (
        "The river is very high after the rain of last week.",
        "Nobody in the village remembers such a wet summer.",
        "My brother works in a large hospital near the station.",
        "We would like to order some coffee and a piece of cake.",
        "Please close the window before you leave the office.",
        "The children are playing football behind the school.",
        "She bought a new bicycle and rides it every morning.",
        "Our train was late because of the heavy snow in the mountains.",
        "They want to paint the kitchen yellow and the door green.",
        "I have forgotten where I left the keys of the car.",
    ),
    "ru": (
        "Завтра утром мы поедем на вокзал встречать бабушку.",
        "В нашем городе открыли новую библиотеку и большой парк.",
        "Мой брат работает в больнице недалеко от станции.",
        "Закройте, пожалуйста, окно, когда будете уходить домой.",
        "Дети играют в футбол во дворе за школой.",
        "Она купила красивое платье и новые туфли.",
        "Наш поезд опоздал из-за сильного снега в горах.",
        "Вечером вся семья собирается за большим столом.",
        "Я забыл, куда положил ключи от машины.",
        "Осенью в лесу много грибов и ягод.",
    ),
}
VOICES = {"en": ("en-us", "en-us+f3", "en-us+m3", "en-gb-scotland"), "ru": ("ru", "ru+f3", "ru+m3", "ru+f2")}
JFK = "And so my fellow Americans ask not what your country can do for you ask what you can do for your country"


@dataclass(frozen=True)
class Scene:
    """A recording. `same_as` names one that holds the same speech with other silence: the words must be the same."""

    name: str
    language: str
    sound: Spoken
    text: str = ""
    same_as: str = ""


@dataclass
class Found:
    words: list[Word]
    took: float

    @property
    def texts(self) -> list[str]:
        return plain(" ".join(word.text for word in self.words))


@dataclass
class Figures:
    said: int = 0
    wrong: int = 0
    places: int = 0
    covered: int = 0
    late: list[float] = field(default_factory=list)
    invented: int = 0
    without_speech_s: float = 0.0
    compared: int = 0
    changed: int = 0
    scenes_changed: int = 0
    scenes_compared: int = 0
    took: float = 0.0
    seconds: float = 0.0

    def add(self, other: Figures) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        parts = []
        if self.said:
            parts.append(f"WER {self.wrong / self.said:6.1%}")
        if self.places:
            parts.append(f"covered {self.covered / self.places:6.1%}")
        if self.late:
            parts.append(f"times p50 {np.median(self.late):.2f} s, p95 {np.quantile(self.late, 0.95):.2f} s")
        if self.without_speech_s:
            parts.append(
                f"invented {self.invented} in {self.without_speech_s:.0f} s ({self.invented / self.without_speech_s * 3600:.0f}/h)"
            )
        if self.compared:
            parts.append(f"words changed by silence {self.changed} of {self.compared}")
        if self.scenes_compared > 1:
            parts.append(f"in {self.scenes_changed} of {self.scenes_compared} recordings")
        return ", ".join(parts)


# ---- what is compared ---------------------------------------------------------------------------------------------------------------


def plain(text: str) -> list[str]:
    """Words without punctuation and case."""
    return re.sub(r"[^\w\s]", " ", text.lower().replace("ё", "е").replace("'", "")).split()


def aligned(said: Sequence[str], heard: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """The cheapest way from one list of words to the other: pairs of positions, `None` for what the other lacks."""
    costs = [list(range(len(heard) + 1))]
    for i, word in enumerate(said, 1):
        row = [i]
        for j, other in enumerate(heard, 1):
            row.append(min(costs[i - 1][j - 1] + (word != other), costs[i - 1][j] + 1, row[j - 1] + 1))
        costs.append(row)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(said), len(heard)
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + (said[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            pairs.append((i, None))
        else:
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]


def wrong(said: Sequence[str], heard: Sequence[str]) -> int:
    return sum(i is None or j is None or said[i] != heard[j] for i, j in aligned(said, heard))


def figures(scene: Scene, found: Found, base: Found | None) -> Figures:
    result = Figures(took=found.took, seconds=scene.sound.seconds)
    words = found.words
    places = scene.sound.words
    if text := plain(scene.text or " ".join(place.text for place in places)):
        result.said, result.wrong = len(text), wrong(text, found.texts)
    if places:
        result.places = len(places)
        spans = [(word.start_ms / 1000 - REACH_S, word.end_ms / 1000 + REACH_S) for word in words]
        result.covered = sum(any(start <= (place.start + place.end) / 2 <= end for start, end in spans) for place in places)
        said, heard = ["".join(plain(place.text)) for place in places], ["".join(plain(word.text)) for word in words]
        result.late = [
            abs(words[j].start_ms / 1000 - places[i].start)
            for i, j in aligned(said, heard)
            if i is not None and j is not None and said[i] == heard[j]
        ]
    if places or not scene.language:
        far = [
            word
            for word in words
            if not any(p.start - NEAR_S < word.end_ms / 1000 and word.start_ms / 1000 < p.end + NEAR_S for p in places)
        ]
        result.invented = len(far)
        result.without_speech_s = scene.sound.seconds - sum(place.end - place.start for place in places)
    if base is not None:
        result.compared, result.changed = len(base.texts), wrong(base.texts, found.texts)
        result.scenes_compared, result.scenes_changed = 1, int(result.changed > 0)
    return result


# ---- what is recognized -------------------------------------------------------------------------------------------------------------


def talk(language: str, count: int, pause: float, *, voices: int = 1, first: int = 0) -> Spoken:
    """Sentences with pauses between them, said by one voice or by several in turn."""
    texts = SAID[language]
    parts: list[Spoken | float] = []
    for number in range(first, first + count):
        parts += [say(texts[number % len(texts)], VOICES[language][number % voices]), pause]
    return join(*parts[:-1])


def scenes(is_long: bool) -> Iterator[Scene]:
    leads = (30, 120, 600)
    if not why_not():
        for language in ("en", "ru"):
            yield from _synthesized(language, leads, is_long)
    for name, lang, path, text in (
        ("demo", "en", DEMO, DEMO_TEXT),
        ("jfk", "en", SHARED / "jfk.flac", JFK),
        ("ru_call", "ru", SHARED / "ru_call.wav", ""),
    ):
        if path.is_file():
            sound = read(path)
            yield Scene(name, lang, sound, text)
            for lead in leads:
                yield Scene(f"{name}, {lead} s before", lang, join(float(lead), sound), text, name)
            yield Scene(f"{name}, 120 s after", lang, join(sound, 120.0), text, name)
            yield Scene(f"{name}, -45 dB", lang, sound.at(-45), text)
    yield from _without_speech(600 if is_long else 120)


def _synthesized(language: str, leads: Sequence[int], is_long: bool) -> Iterator[Scene]:
    short = talk(language, 3, 0.6)
    for lead in (0, *leads):
        yield Scene(f"{language}, {lead} s before", language, join(float(lead), short), same_as=f"{language}, 0 s before" if lead else "")
    yield Scene(f"{language}, 120 s after", language, join(short, 120.0), same_as=f"{language}, 0 s before")
    count = 10 if is_long else 5
    for pause in (0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0):
        same_as = f"{language}, pauses of 1.0 s" if pause > 1 else ""
        yield Scene(f"{language}, pauses of {pause} s", language, talk(language, count, pause), same_as=same_as)
    yield Scene(f"{language}, four voices", language, talk(language, 8, 0.4, voices=4))
    yield Scene(f"{language}, -45 dB", language, talk(language, 4, 0.6).at(-45))
    parts: list[Spoken | float] = [part for n in range(6) for part in (talk(language, 1, 0, first=n).at(-45 if n % 2 else -18), 0.8)]
    yield Scene(f"{language}, quiet and loud in turn", language, join(*parts))
    for shift in (0.0, 7.3, 13.9) if is_long else (7.3,):  # what lies at the borders of windows
        yield Scene(
            f"{language}, windows moved by {shift} s",
            language,
            join(say(SAID[language][3], VOICES[language][0]), shift, talk(language, 20, 0.35)),
        )
    if is_long:  # beyond what is held at once, without a pause that would end a passage
        yield Scene(f"{language}, pieces", language, talk(language, 240, 0.3))
        yield Scene(f"{language}, pieces, 120 s before", language, join(120.0, talk(language, 240, 0.3)), same_as=f"{language}, pieces")


def _without_speech(seconds: float) -> Iterator[Scene]:
    count = round(seconds * RATE)
    rng = np.random.default_rng(1)
    t = np.arange(count) / RATE
    white = rng.normal(size=count)
    spectrum = np.fft.rfft(rng.normal(size=count))
    pink = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), count)
    hum = sum(np.sin(2 * np.pi * 50 * k * t) / k for k in range(1, 9))
    yield Scene("silence", "", silence(seconds))
    for name, sound in (("white noise", white), ("pink noise", pink), ("hum", hum), ("music", _music(t, rng))):
        for level in (-20, -45):
            yield Scene(f"{name}, {level} dB", "", Spoken(np.asarray(sound, np.float32)).at(level))


def _music(t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Chords, a melody and a beat."""
    beat = 0.5
    sound = np.zeros_like(t)
    root = 110.0
    count = round(beat * RATE)
    for number in range(len(t) // count):
        place = slice(number * count, (number + 1) * count)
        local = t[:count]
        fade = np.exp(-3 * local)
        if number % 4 == 0:
            root = 110 * 2 ** (rng.choice([0, 5, 7, 9]) / 12)
        notes = [root, root * 5 / 4, root * 3 / 2, root * 2 * 2 ** (rng.choice([0, 2, 4, 7, 9]) / 12) * 2]
        sound[place] = fade * sum(np.sin(2 * np.pi * note * local * k) / k**2 for note in notes for k in (1, 2, 3))
        sound[place] += 0.5 * np.exp(-40 * local) * rng.normal(size=count)
    return sound


def recognize(provider: WhisperProvider, scene: Scene, folder: Path, *, normalized: bool) -> Found:
    path = write(folder / "sound.wav", scene.sound)
    if normalized:
        copy = folder / "sound.ogg"
        audio.normalize(path, copy, channels="mix", max_duration_s=24 * 3600, beat=lambda _: None)
        path = copy
    began = time.perf_counter()
    options = provider.options(language=scene.language, channels=1)
    transcript = provider.parse(provider.poll(attempt(path, options, duration_ms=round(scene.sound.seconds * 1000)), Watching()))
    return Found([word for utterance in transcript.utterances for word in utterance.words], time.perf_counter() - began)


def main(*arguments: str) -> None:
    is_long, normalized = "long" in arguments, "wav" not in arguments
    only = [argument for argument in arguments if argument not in ("long", "wav")]
    if reason := why_not():
        print(f"no synthesized speech: {reason}")
    if not SHARED.is_dir():
        print("no shared recordings on this machine: the demo's alone")
    totals: dict[str, Figures] = {}
    bases: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        provider = WhisperProvider(model="base", models_dir=folder / "models", threads=1, open_source=opened)
        for scene in scenes(is_long):
            if only and not any(word in scene.name for word in only):
                continue
            found = recognize(provider, scene, folder, normalized=normalized)
            bases[scene.name] = found
            result = figures(scene, found, bases.get(scene.same_as))
            print(f"{scene.name:<32} {scene.sound.seconds:5.0f} s in {found.took:5.1f} s  {result}", flush=True)
            if result.wrong or result.invented or result.changed:
                print("   |", " ".join(found.texts)[:1500], flush=True)
            for kind in ({"en": "English", "ru": "Russian"}.get(scene.language, "no speech"), "all"):
                totals.setdefault(kind, Figures()).add(result)
    for kind, total in totals.items():
        print(f"{kind:<10} {total.seconds / 60:4.0f} min in {total.took / 60:4.1f} min  {total}")
