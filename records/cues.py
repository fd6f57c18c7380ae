"""Subtitles as subtitlers make them: what is said, cut into cues and lines that can be read while they are heard. Pure and deterministic.

The measures: two lines of 42 characters, 16 for scripts of full width, one to seven seconds, 20 characters a second.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from recognition.contract import Transcript, Utterance

LINE_LENGTH = 42
LINE_LENGTH_FULL_WIDTH = 16
SHORTEST_MS = 1000
LONGEST_PAUSE_MS = 1500
"""A longer one always ends a cue."""
CHARACTERS_A_SECOND = 20
SHORT_WORD = 4
"""Characters of a word that looks lost when it stands alone."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What cues keep to. `max_line_length` None: 42, or 16 where most letters are of full width."""

    max_line_length: int | None = None
    max_lines: int = 2
    max_duration_ms: int = 7000


@dataclass(frozen=True, slots=True)
class Piece:
    """A word as it is written, with what follows it in the text: a space, or nothing in scripts without spaces."""

    start_ms: int
    end_ms: int
    written: str


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown from one moment to another."""

    start_ms: int
    end_ms: int
    lines: tuple[tuple[Piece, ...], ...]
    speaker: str
    channel: int
    heard_until_ms: int = 0
    """Where its last word ends: what is beyond stands for those who read."""

    @property
    def texts(self) -> list[str]:
        """Its lines."""
        return ["".join(piece.written for piece in line).strip() for line in self.lines]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


NO_NAME = re.compile(r"((speaker|spk|channel)[\s_-]*)?(\d*|\w)", re.IGNORECASE)
"""What providers call voices whom they can't name: 1, A, speaker_2."""


def speakers(transcript: Transcript) -> dict[tuple[int, str | None], str]:
    """What each voice is called: by its name, or as long as it has none `Speaker 1`, counted in the order in which voices are first heard."""
    voices = dict.fromkeys(voice(utterance) for utterance in transcript.utterances if utterance.text.strip())
    return {
        one: f"Speaker {number}" if NO_NAME.fullmatch(one[1] or "") else " ".join(str(one[1]).split())
        for number, one in enumerate(voices, 1)
    }


def voice(utterance: Utterance) -> tuple[int, str | None]:
    """Who speaks: somebody on a channel, told from others there if the provider tells them apart."""
    return utterance.channel, utterance.speaker


def cut(transcript: Transcript, measures: Measures = Measures(), *, labelled: bool = False) -> list[Cue]:
    """The cues of a transcript, in the order in which they begin. `labelled`: one with which another voice begins says whose it is."""
    names = speakers(transcript)
    said = [utterance for utterance in transcript.utterances if utterance.text.strip()]
    runs = [(whose, list(run)) for whose, run in groupby(said, key=voice)]
    cues: list[Cue] = []
    since: dict[tuple[int, str | None], int] = {}
    for whose, utterances in runs:
        changes = True
        whole = _atoms(utterances, since.get(whose, 0))
        since[whose] = whole[-1].pieces[-1].start_ms
        for atoms in _apart_by_pauses(whole):
            length = measures.max_line_length or (LINE_LENGTH_FULL_WIDTH if _is_full_width(atoms) else LINE_LENGTH)
            atoms = _cut_long(atoms, length)
            is_labelled = labelled and changes
            if is_labelled:
                atoms, is_labelled = _labelled(atoms, names[whose], length, measures)
            language = (transcript.language or "").partition("-")[0].lower()
            for first, last in _best_cuts(atoms, length, measures, language, is_labelled=is_labelled):
                shown = atoms[first : last + 1]
                cues.append(
                    Cue(
                        start_ms=shown[0].start_ms,
                        end_ms=shown[-1].end_ms,
                        lines=tuple(tuple(piece for atom in line for piece in atom.pieces) for line in _lines(shown, length, language)),
                        speaker=names[whose],
                        channel=whose[0],
                        heard_until_ms=shown[-1].end_ms,
                    )
                )
            changes = False
    return _timed(cues, measures)


# ---- what can't be parted -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Atom:
    """What stands on one line: a word, with what is glued to it."""

    pieces: tuple[Piece, ...]
    text: str = field(init=False)
    width: int = field(init=False)
    """Characters that take room, without the space after it."""
    gap: int = field(init=False)
    """Characters between it and the next on a line."""
    start_ms: int = field(init=False)
    end_ms: int = field(init=False)

    def __post_init__(self) -> None:
        text = "".join(piece.written for piece in self.pieces)
        shown = text.rstrip()
        values = (text, width(shown), len(text) - len(shown), self.pieces[0].start_ms, self.pieces[-1].end_ms)
        for name, value in zip(("text", "width", "gap", "start_ms", "end_ms"), values, strict=True):
            object.__setattr__(self, name, value)  # it is frozen


def width(text: str) -> int:
    """Characters that take room of their own: marks above and below letters don't."""
    return len(text) if text.isascii() else sum(unicodedata.category(character) not in ("Mn", "Me", "Cf") for character in text)


def _atoms(utterances: Iterable[Utterance], since_ms: int) -> list[_Atom]:
    pieces: list[Piece] = []
    for utterance in utterances:
        own = _pieces(utterance)
        if pieces and own and not pieces[-1].written[-1].isspace() and not _need_no_space(pieces[-1].written, own[0].written):
            pieces[-1] = replace(pieces[-1], written=f"{pieces[-1].written} ")
        pieces += own
    pieces = _in_order(pieces, since_ms)
    atoms: list[list[Piece]] = []
    for piece in pieces:
        last = atoms[-1][-1] if atoms else None
        if last is None or last.written[-1].isspace() or _may_part(last.written, piece.written):
            atoms.append([piece])
        elif not any(character.isalnum() for character in piece.written):
            atoms[-1].append(replace(piece, start_ms=last.end_ms, end_ms=last.end_ms))  # a mark is not heard
        elif piece.start_ms - last.end_ms > LONGEST_PAUSE_MS:
            atoms.append([piece])
        else:
            atoms[-1].append(piece)
    return [_Atom(tuple(atom)) for atom in atoms]


def _in_order(pieces: Sequence[Piece], since_ms: int) -> list[Piece]:
    """With times that never go back, whatever the provider said."""
    ordered: list[Piece] = []
    now = since_ms
    for piece in pieces:
        start = max(now, piece.start_ms)
        ordered.append(replace(piece, start_ms=start, end_ms=max(start, piece.end_ms)))
        now = start
    return [replace(piece, end_ms=min(piece.end_ms, after.start_ms)) for piece, after in pairwise(ordered)] + ordered[-1:]


def _pieces(utterance: Utterance) -> list[Piece]:
    """The words as the text has them. Without words of its own an utterance is parted at its spaces, in time as its characters are."""
    text = " ".join(utterance.text.split())
    if utterance.words:
        return [
            Piece(word.start_ms, word.end_ms, written)
            for word, written in zip(utterance.words, _as_written(utterance, text), strict=True)
            if written.strip()
        ]
    return _spread(text, utterance.start_ms, max(utterance.start_ms, utterance.end_ms))


def _as_written(utterance: Utterance, text: str) -> list[str]:
    """The words with what follows each in the text, so that joined they read as it does: no space is put into Chinese or Thai.

    Where the words are not those of the text, they are set apart by spaces.
    """
    words = [" ".join(word.text.split()) for word in utterance.words]
    starts: list[int] = []
    place = 0
    for word in words:
        start = text.find(word, place)
        if start < 0 or any(character.isalnum() for character in text[place:start]):
            return [f"{word} " for word in words]
        starts.append(start)
        place = start + len(word)
    if any(character.isalnum() for character in text[place:]):
        return [f"{word} " for word in words]
    starts[0] = 0
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _spread(text: str, start_ms: int, end_ms: int) -> list[Piece]:
    """A text parted wherever a line may end, each part with its share of the time."""
    parts: list[str] = []
    for character in text:
        if parts and not (parts[-1][-1].isspace() and not character.isspace()) and not _may_part(parts[-1], character):
            parts[-1] += character
        else:
            parts.append(character)
    total = max(1, len(text))
    pieces = []
    place = 0
    for part in parts:
        after = place + len(part)
        pieces.append(Piece(start_ms + (end_ms - start_ms) * place // total, start_ms + (end_ms - start_ms) * after // total, part))
        place = after
    return pieces


def _cut_long(atoms: Sequence[_Atom], length: int) -> list[_Atom]:
    """Words of scripts without spaces that are longer than a line, parted between their characters."""
    cut: list[_Atom] = []
    for atom in atoms:
        if atom.width <= length:
            cut.append(atom)
            continue
        pieces = [part for piece in atom.pieces for part in _spread(piece.written, piece.start_ms, piece.end_ms)]
        for piece in pieces:
            if cut and cut[-1].pieces[-1] in pieces and not _may_part(cut[-1].text, piece.written) and not cut[-1].gap:
                cut[-1] = _Atom((*cut[-1].pieces, piece))
            else:
                cut.append(_Atom((piece,)))
    return cut


NO_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "IDEOGRAPHIC", "BOPOMOFO")


def _has_no_spaces(character: str) -> bool:
    """Whether it is of a script that sets no spaces between words. Korean does."""
    return unicodedata.name(character, "").startswith(NO_SPACES)


def _may_part(before: str, after: str) -> bool:
    """Whether a line may end between the two though there is no space."""
    if not (_has_no_spaces(before[-1]) or _has_no_spaces(after[0])):
        return False
    if unicodedata.category(after[0]) in ("Pe", "Pf", "Po", "Mn", "Mc", "Lm") or unicodedata.category(before[-1]) in ("Ps", "Pi"):
        return False  # a line begins with no closing mark, and ends with no opening one
    thai = unicodedata.name(after[0], ""), unicodedata.name(before[-1], "")
    return not any(name.startswith(("THAI", "LAO", "KHMER", "MYANMAR")) for name in thai) or len(before) > 1


def _need_no_space(before: str, after: str) -> bool:
    """Two sentences of a script without spaces follow each other without one."""
    return _has_no_spaces(after[0]) and (_has_no_spaces(before[-1]) or unicodedata.east_asian_width(before[-1]) in "WF")


def _is_full_width(atoms: Sequence[_Atom]) -> bool:
    letters = [character for atom in atoms for character in atom.text if character.isalpha()]
    return 2 * sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters) > len(letters)


def _labelled(atoms: list[_Atom], name: str, length: int, measures: Measures) -> tuple[list[_Atom], bool]:
    """With the name of who speaks before them, where there is room for it beside the first word; and whether there is."""
    start = atoms[0].start_ms
    first = _Atom((Piece(start, start, f"{name}: "),))
    has_room = first.width <= length and (measures.max_lines > 1 or first.width + 1 + atoms[0].width <= length)
    return ([first, *atoms], True) if has_room else (atoms, False)


def _apart_by_pauses(atoms: Sequence[_Atom]) -> list[list[_Atom]]:
    runs: list[list[_Atom]] = []
    for atom in atoms:
        if not runs or atom.start_ms - runs[-1][-1].end_ms > LONGEST_PAUSE_MS:
            runs.append([])
        runs[-1].append(atom)
    return runs


# ---- where to cut ---------------------------------------------------------------------------------------------------------------------------

SENTENCE_ENDS = ".!?…。！？؟।"
CLAUSE_ENDS = ",;:、，；：،—–"
_CONJUNCTIONS = {
    "en": "and but or nor so because that which who when where while if as than though although",
    "ru": "и а но или что чтобы когда если как потому который которая которое которые где хотя",
    "de": "und aber oder sondern dass weil wenn als denn der die das",
    "fr": "et mais ou que qui parce quand si comme",
    "es": "y e pero o que porque cuando si como",
    "it": "e ma o che perché quando se come",
    "pt": "e mas ou que porque quando se como",
}
_CLINGING = {
    "en": "a an the my your his her its our their this that these those of to in on at by for from with",
    "ru": "в во на с со к ко у о об и а из от до за по под над при про для без не ни",
    "de": "der die das den dem des ein eine einen einem einer im am zu von mit für auf in an",
    "fr": "le la les un une des du de à au aux en dans sur pour par ne",
    "es": "el la los las un una unos unas de del a al en con por para no",
    "it": "il lo la i gli le un uno una di del della a al in con per non",
    "pt": "o a os as um uma de do da em no na com por para não",
}
"""Articles and what else belongs to the next word."""
CONJUNCTIONS = {language: frozenset(words.split()) for language, words in _CONJUNCTIONS.items()}
CLINGING = {language: frozenset(words.split()) for language, words in _CLINGING.items()}


def _bare(atom: _Atom) -> str:
    return atom.text.strip().strip("«»\"'“”„()[]¿¡").lower()


def _weight_of_break(atoms: Sequence[_Atom], after: int, language: str) -> float:
    """How bad it is to part atoms `after` and `after + 1`: 0 at the end of a sentence, most after an article."""
    last = atoms[after].text.rstrip().rstrip("»\"'”)]」』")
    if last.endswith(tuple(SENTENCE_ENDS)):
        return 0.0
    pause = atoms[after + 1].start_ms - atoms[after].end_ms
    if last.endswith(tuple(CLAUSE_ENDS)):
        weight = 1.0
    elif _bare(atoms[after]) in CLINGING.get(language, ()):
        return 6.0
    elif _bare(atoms[after + 1]) in CONJUNCTIONS.get(language, ()):
        weight = 2.0
    else:
        weight = 3.0
    return weight * (0.3 if pause > 600 else 0.6 if pause > 250 else 1.0)


def _best_cuts(atoms: Sequence[_Atom], length: int, measures: Measures, language: str, *, is_labelled: bool) -> list[tuple[int, int]]:
    """First and last atom of each cue: the cheapest way through, by dynamic programming over where cues end."""
    count = len(atoms)
    breaks = [_weight_of_break(atoms, after, language) for after in range(count - 1)]
    if is_labelled:
        breaks[0] = 100.0  # a name stands with what is said
    best: list[tuple[float, int]] = [(0.0, 0)] + [(float("inf"), 0)] * count
    for first in range(count):
        lines, used, characters, inside = 1, 0, 0, 0.0
        for last in range(first, count):
            atom = atoms[last]
            gap = atoms[last - 1].gap if last > first else 0
            if last > first:
                if used + gap + atom.width > length:
                    lines, used, gap = lines + 1, 0, 0
                inside += _bridging(atoms, last - 1, breaks[last - 1])
                if lines > measures.max_lines or atom.end_ms - atoms[first].start_ms > measures.max_duration_ms:
                    break
            used += gap + atom.width
            characters += gap + atom.width
            cost = best[first][0] + inside + _cost(atoms, first, last, characters)
            if last < count - 1:
                cost += 2 * breaks[last]
            if cost < best[last + 1][0]:
                best[last + 1] = (cost, first)
    cuts: list[tuple[int, int]] = []
    end = count
    while end:
        first = best[end][1]
        cuts.append((first, end - 1))
        end = first
    return cuts[::-1]


def _bridging(atoms: Sequence[_Atom], after: int, weight: float) -> float:
    """The price of keeping together what a sentence's end or a pause parts."""
    pause = atoms[after + 1].start_ms - atoms[after].end_ms
    return (1.5 if weight == 0.0 else 0.0) + 2.0 * max(0, pause - 300) / LONGEST_PAUSE_MS


def _cost(atoms: Sequence[_Atom], first: int, last: int, characters: int) -> float:
    cost = 1.0
    until = atoms[last + 1].start_ms if last + 1 < len(atoms) else atoms[last].end_ms + LONGEST_PAUSE_MS
    room = max(1, until - atoms[first].start_ms)
    if room < SHORTEST_MS:
        cost += 4.0 + 6.0 * (1 - room / SHORTEST_MS)
    speed = characters * 1000 / room
    if speed > CHARACTERS_A_SECOND:
        cost += 2.0 + 5.0 * (speed / CHARACTERS_A_SECOND - 1)
    if first == last and len(atoms) > 1:
        cost += 8.0 if atoms[first].width <= SHORT_WORD else 3.0
    elif characters <= 10:
        cost += 1.5
    return cost


# ---- lines ----------------------------------------------------------------------------------------------------------------------------------


def _lines(atoms: Sequence[_Atom], length: int, language: str) -> list[Sequence[_Atom]]:
    """As few lines as it takes, broken at a good place near the middle."""
    count = len(atoms)
    before = [0]
    for atom in atoms:
        before.append(before[-1] + atom.width + atom.gap)

    def long(first: int, end: int) -> int:
        return before[end] - before[first] - atoms[end - 1].gap

    wanted, first = 1, 0
    for end in range(1, count + 1):
        if long(first, end) > length and end - 1 > first:
            wanted, first = wanted + 1, end - 1
    ideal = long(0, count) / wanted
    breaks = [_weight_of_break(atoms, after, language) for after in range(count - 1)]
    # of each number of lines and each end: cost, and where the last of them begins
    table: list[list[tuple[float, int]]] = [[(float("inf"), 0)] * (count + 1) for _ in range(wanted + 1)]
    table[0][0] = (0.0, 0)
    for number in range(1, wanted + 1):
        for end in range(1, count + 1):
            for start in range(end - 1, -1, -1):
                if long(start, end) > length and end - start > 1:
                    break
                taken = table[number - 1][start][0]
                cost = taken + ((long(start, end) - ideal) / max(1.0, ideal)) ** 2 * 4
                if end < count:
                    cost += 0.5 * breaks[end - 1]
                if cost < table[number][end][0]:
                    table[number][end] = (cost, start)
    lines: list[Sequence[_Atom]] = []
    end = count
    for number in range(wanted, 0, -1):
        start = table[number][end][1]
        lines.append(atoms[start:end])
        end = start
    return lines[::-1]


# ---- times ----------------------------------------------------------------------------------------------------------------------------------


def _timed(cues: list[Cue], measures: Measures) -> list[Cue]:
    """Each stands as long as it takes to read it, where what comes next lets it; none overlaps but where two channels speak at once."""
    moved: list[tuple[int, Cue]] = []
    free: dict[int, int] = {}  # from when on each channel has room
    for cue in sorted(cues, key=lambda cue: cue.start_ms):
        start = max(cue.start_ms, free.get(cue.channel, 0))
        free[cue.channel] = start + 1
        moved.append((start, cue))
    moved.sort(key=lambda one: one[0])
    timed: list[Cue] = []
    later: list[int | None] = [None] * len(moved)  # where the next that begins after it does
    same: list[int | None] = [None] * len(moved)  # where the next of its channel begins
    of_channel: dict[int, int] = {}
    for number in range(len(moved) - 1, -1, -1):
        start, cue = moved[number]
        if number + 1 < len(moved):
            following = moved[number + 1][0]
            later[number] = following if following > start else later[number + 1]
        same[number] = of_channel.get(cue.channel)
        of_channel[cue.channel] = start
    for (start, cue), after, own in zip(moved, later, same, strict=True):
        heard = max(start + 1, cue.heard_until_ms)
        if own is not None:
            heard = min(heard, own)
        needed = max(SHORTEST_MS, -(-sum(width(text) for text in cue.texts) * 1000 // CHARACTERS_A_SECOND))
        wanted = start + needed if after is None else min(start + needed, after)
        end = min(max(heard, wanted), start + measures.max_duration_ms)
        timed.append(replace(cue, start_ms=start, end_ms=max(end, start + 1), heard_until_ms=heard))
    return timed
