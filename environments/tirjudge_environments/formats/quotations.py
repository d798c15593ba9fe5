"""Reading of a judge's turn without quotations of the judged texts.

A judge may repeat a response that contains tags or fences. The judged texts are known, so a span of the turn
that repeats a judged text is a quotation, whatever fences or marks surround the span. If a tag could be the
judge's or quoted, and both readings give different verdicts, there is no verdict.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from zlib import crc32

from tirjudge_environments.messages import texts_of
from tirjudge_environments.quoting import without_invisible
from tirjudge_environments.turn_reader import find_fences
from tirjudge_environments.types import JudgeTask, Malformed, Verdict

Read = Callable[[str], Verdict | Malformed]
"""Reads a verdict from a text in which the tags and fences of quotations are masked."""

AMBIGUOUS = Malformed("the verdict may be quoted from a response")

_GRAM = 8
"""Letters and digits of a seed: every repeated run of 2 * 8 - 1 of them contains a seed."""
_SHORTEST = 16
"""Letters and digits, apart from tags, that make a repeated run a quotation."""
_SHORTEST_WHOLE = 4
"""Letters and digits that suffice if the run is a whole text."""
_MOST_SEEDS = 4
_MOST_DELIMITED = 64
"""Lines of a judged text that is also looked for between two fence lines."""
_MOST_LINES = 8
"""Most fence lines of a turn that are each tried as quoted."""
_MOST_DOUBTFUL = 16
"""Doubtful tags that are tried one by one."""

_MASKS = {"<": "‹", "\\": "⧵", "`": "ˋ", "~": "∼"}
"""Characters that are drawn like the masked ones, since parts of a masked text are stored."""
_SKIPPED = r"(?m:^[ \t>]*[0-9]{1,3}[.):|](?=\s))|</?[A-Za-z][^<>\n]{0,80}>|&(?:[a-z]{2,6}|#[0-9]{1,5});"
"""Numbers of lists and lines, HTML and entities, which a quotation may add to a text or leave out of it."""
_GAP = r"\n(?:(?:[ \t>|*+-]|[0-9]{1,3}[.)](?=\s))*+\n)++"
"""Empty lines: a repeated run has them where the judged text has them."""
_MARKED_LINE = re.compile(r"[ \t]*(?:>|\||[-*+•–][ \t]|[0-9]{1,3}[.):][ \t])|[ ]{2}|[ ]?\t")
_SPEECH = re.compile(r"\"[^\"\n]*\"|“[^”“\n]*”|«[^»«\n]*»|‘[^’‘\n]*’|„[^“”„\n]*[“”]")
_TICKED_LINE = re.compile(r"`[^\n]*`")
_ANY_FENCE = re.compile(r"^[ \t]*+(?P<ticks>`{3,}+|~{3,}+)(?P<info>[^`\n]*+)$", re.MULTILINE)
_DELIMITER = re.compile(r"```|~~~|</?[A-Za-z][\w-]{0,20}>$")
"""Begins a line that encloses a quotation."""
_ELEMENT = re.compile(r"<(/?)([A-Za-z][\w:-]*)[^<>\n]{0,80}>")
_QUOTES = re.compile(
    r"(?i:blockquote|pre|code|q|cite|samp|kbd|tt|xmp|textarea|t[dhr]|table|[uo]l|li|details|summary"
    r"|.*(?:quot|response|candidate|assistant|chatbot|excerpt|text).*)"
)
"""Names of elements that hold what somebody else wrote."""


@dataclass(frozen=True)
class Marks:
    """The tokens from which a format reads a verdict."""

    elements: tuple[str, ...] = ()
    """Names of elements whose content is an answer."""
    tags: tuple[str, ...] = ("think",)
    """Names of further tags that matter, each by itself."""
    others: str = r"(?!)"
    """A regular expression of other tokens that matter, each by itself."""

    @cached_property
    def written(self) -> re.Pattern[str]:
        """Matches a token of a turn."""
        return re.compile(rf"<(?P<close>/?)(?P<name>{self._names})>|(?P<other>{self.others})")

    @cached_property
    def shown(self) -> re.Pattern[str]:
        """Matches a token of a judged text, also if a judge would tidy it when it quotes it."""
        return re.compile(
            rf"<\s{{0,3}}(?P<close>/?)\s{{0,3}}(?P<name>(?i:{self._names}))\s{{0,3}}>|(?P<other>{self.others})"
        )

    @property
    def _names(self) -> str:
        return "|".join(map(re.escape, (*self.elements, *self.tags)))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A tag, or an element with content, that is quoted or not as a whole."""

    key: tuple[str, str]
    """The unit may repeat a judged text's unit of equal key."""
    start: int
    end: int
    tokens: tuple[int, ...]
    """Start offsets of the tags."""


def judged_texts(task: JudgeTask) -> tuple[str, ...]:
    """Return every text of a task that a judge may quote."""
    shown = [text for candidate in task.candidates for text in texts_of(candidate)]
    shown += [text for message in task.prompt for text in texts_of((message,))]
    shown += [*texts_of(task.reference), *(criterion.text for criterion in task.criteria)]
    shown += [text for folder in (*task.files, task.prompt_files) for text in folder.texts]
    return tuple(dict.fromkeys(filter(None, shown)))


def read_own(
    text: str, task: JudgeTask, marks: Marks, read: Read, *, fenced: bool = False
) -> Verdict | Malformed:
    """Read a turn with `read`, which sees no tag and no fence that the turn quotes from the texts of a task.

    With `fenced` the format does not read what is inside of fences. Takes time linear in turn and texts.
    """
    fences = fenced and "```" in text
    hazards = _hazards(task, marks, fences)
    if not hazards:
        return read(text)
    turn = _Turn(text, hazards, marks)
    if not fences:
        return turn.reading(frozenset(), read).found
    first, *others = (turn.reading(lines, read) for lines in turn.fence_readings())
    # Fences that are left open swallow a verdict, or leave a quoted one outside.
    tried = [first, *others] if first.sure or not others else others
    failed = [one for one in tried if isinstance(one.found, Malformed)]
    if AMBIGUOUS in [one.found for one in failed]:
        return AMBIGUOUS
    if failed and not any(one.sure for one in tried):
        return failed[0].found
    found = [one.found for one in tried if isinstance(one.found, Verdict)]
    return AMBIGUOUS if any(not _same(one, other) for one, other in pairwise(found)) else found[0]


def mask_quotations(text: str, task: JudgeTask, marks: Marks, *, fenced: bool = False) -> str:
    """Return the text, of the same length, with masked tags and fences where it surely quotes."""
    fences = fenced and "```" in text
    hazards = _hazards(task, marks, fences)
    if not hazards:
        return text
    turn = _Turn(text, hazards, marks)
    return turn.masked(turn.quoted, turn.quoted_lines if fenced else ())


def _hazards(task: JudgeTask, marks: Marks, fences: bool) -> list[str]:
    """Return the judged texts with tokens or fences, as they are and as a judge may tidy them."""
    texts = judged_texts(task)
    tidied = (unicodedata.normalize("NFKC", html.unescape(without_invisible(text))) for text in texts)
    return [
        text
        for text in dict.fromkeys(text.strip() for text in (*texts, *tidied))
        if marks.shown.search(text) or (fences and "```" in text)
    ]


def _same(one: Verdict | Malformed, other: Verdict | Malformed) -> bool:
    """Return True for equal verdicts; other parts of the answer may differ."""
    if isinstance(one, Malformed) or isinstance(other, Malformed):
        return isinstance(one, Malformed) and isinstance(other, Malformed)
    return (one.choice, one.tie, one.scores, one.criteria) == (
        other.choice,
        other.tie,
        other.scores,
        other.criteria,
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    found: Verdict | Malformed
    sure: bool
    """True for a verdict that does not rest on doubtful tags alone."""


class _Stream:
    """The letters and digits of a text, with one character for each token of a format."""

    def __init__(self, text: str, tokens: re.Pattern[str], names: Sequence[str]):
        symbols = {name: chr(0xE000 + 2 * number) for number, name in enumerate(names)}
        parts: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        for found in re.finditer(rf"{tokens.pattern}|(?P<gap>{_GAP})|(?P<skip>{_SKIPPED})|[^\W_]", text):
            if found["skip"] is not None:
                continue
            if found["gap"] is not None:
                parts.append("\ue3ff")
            elif found["name"] is not None:
                parts.append(chr(ord(symbols[_name(found["name"], names)]) + bool(found["close"])))
            elif found["other"] is not None:
                parts.append(chr(0xE400 + crc32("".join(found[0].split()).encode()) % 0x400))
            else:
                low = found[0].lower()
                parts.append(low if len(low) == 1 else found[0])
            self.starts.append(found.start())
            self.ends.append(found.end())
        self.text = "".join(parts)


def _name(written: str, names: Sequence[str]) -> str:
    return next((name for name in names if name == written), None) or next(
        name for name in names if name.lower() == written.lower()
    )


def _is_symbol(character: str) -> bool:
    return "\ue000" <= character <= "\ue800"


class _Turn:
    """A judge's turn beside the judged texts that have tags or fences of their own."""

    def __init__(self, text: str, shown: Sequence[str], marks: Marks):
        self._text, self._shown, self._marks = text, shown, marks
        self._names = (*marks.elements, *marks.tags)
        self._units = _units(text, marks, marks.written, self._names)
        keys = {unit.key for one in shown for unit in _units(one, marks, marks.shown, self._names)}
        self._doubtful = [unit for unit in self._units if unit.key in keys]
        self._lines = list(_ANY_FENCE.finditer(text))
        self._spans, self.quoted_lines = self._repeated()
        self.quoted = frozenset(unit for unit in self._doubtful if self._is_quoted(unit))

    def reading(self, lines: Collection[int], read: Read) -> _Reading:
        """Read the turn with the fence lines `lines` masked; AMBIGUOUS if doubtful tags decide the result."""
        doubtful = [unit for unit in self._doubtful if unit not in self.quoted]
        closers = [unit for unit in doubtful if unit.key == ("/think", "")]
        doubtful = [unit for unit in doubtful if unit.key[0].lstrip("/") not in self._marks.tags]
        last = self._read(doubtful, self.quoted, lines, read)
        if len(closers) < 2:
            return last
        first = self._read(doubtful, self.quoted.union(closers[1:]), lines, read)
        return last if _same(first.found, last.found) else _Reading(AMBIGUOUS, sure=False)

    def _read(
        self, doubtful: Sequence[_Unit], quoted: frozenset[_Unit], lines: Collection[int], read: Read
    ) -> _Reading:
        plain = read(self.masked(quoted, lines))
        if isinstance(plain, Malformed) or not doubtful:
            return _Reading(plain, sure=isinstance(plain, Verdict))
        if len(doubtful) > _MOST_DOUBTFUL:
            return _Reading(AMBIGUOUS, sure=False)
        none = quoted.union(doubtful)
        own = read(self.masked(none, lines))
        standing = read(self.masked(none.difference(unit for unit in doubtful if self._stands(unit)), lines))
        alone = (read(self.masked(none.difference((unit,)), lines)) for unit in doubtful)
        # The verdict needs the tags that stand alone, and no other choice of tags may give another verdict.
        if isinstance(standing, Malformed) or any(
            isinstance(other, Verdict) and not _same(plain, other) for other in (own, standing, *alone)
        ):
            return _Reading(AMBIGUOUS, sure=False)
        return _Reading(plain, sure=isinstance(own, Verdict))

    def masked(self, units: Iterable[_Unit], lines: Collection[int]) -> str:
        """Return the text with masks in place of the tokens of these units and the ticks of these lines."""
        places = [(token, token + 1) for unit in units for token in unit.tokens]
        places += [line.span("ticks") for line in self._lines if line.start() in lines]
        parts, done = [], 0
        for start, end in sorted(places):
            mask = _MASKS.get(self._text[start], "‹")
            parts += [self._text[done:start], mask * (end - start)]
            done = end
        return "".join((*parts, self._text[done:]))

    def fence_readings(self) -> Iterator[frozenset[int]]:
        """Yield the quoted fence lines; if they leave a fence open, also all sets with one line more."""
        lines = self.quoted_lines
        if not self._closed(lines):
            # A quotation may be marked by its indentation alone.
            lines = lines.union(line.start() for line in self._lines if _MARKED_LINE.match(line[0]))
        yield lines
        others = [
            line.start() for line in self._lines if line["ticks"][0] == "`" and line.start() not in lines
        ]
        if not self._closed(lines) and len(others) <= _MOST_LINES:
            yield from (lines.union((line,)) for line in others)

    def _closed(self, lines: Collection[int]) -> bool:
        if not any("```" in shown for shown in self._shown):
            return True
        return all(fence.closed for fence in find_fences(self.masked((), lines)))

    def _repeated(self) -> tuple[list[tuple[int, int]], frozenset[int]]:
        """Return the spans that repeat a judged text, in order, and the starts of the fence lines in them."""
        stream = _Stream(self._text, self._marks.written, self._names)
        shown = [_Stream(one, self._marks.shown, self._names) for one in self._shown]
        inside = bytearray(map(_is_symbol, stream.text))
        units = iter((*self._units, None))
        unit = next(units)
        for place, start in enumerate(stream.starts):
            while unit is not None and unit.end <= start:
                unit = next(units)
            inside[place] |= unit is not None and unit.start <= start
        words = [0, *accumulate(not one for one in inside)]
        self._starts, self._words = stream.starts, words
        spans: list[tuple[int, int]] = []
        lines: set[int] = set()
        for start, end, number, first, last in _runs(stream.text, [one.text for one in shown], words):
            begin, stop = stream.starts[start], stream.ends[end - 1]
            head = self._shown[number][: shown[number].starts[first]] if first == 0 else ""
            tail = (
                self._shown[number][shown[number].ends[last - 1] :] if last == len(shown[number].text) else ""
            )
            before = stream.ends[start - 1] if start else 0
            after = stream.starts[end] if end < len(stream.starts) else len(self._text)
            lines.update(self._fence_lines(begin, stop))
            if count := len(_ANY_FENCE.findall(head)):
                lines.update(self._fence_lines(before, begin)[-count:])
            if count := len(_ANY_FENCE.findall(tail)):
                lines.update(self._fence_lines(stop, after)[:count])
            spans.append((begin, stop))
        for begin, stop in self._delimited():
            lines.update(self._fence_lines(begin, stop))
            spans.append((begin, stop))
        return _joined(spans), frozenset(lines)

    def _fence_lines(self, begin: int, stop: int) -> list[int]:
        return [line.start() for line in self._lines if line.start() < stop and line.end() > begin]

    def _delimited(self) -> Iterator[tuple[int, int]]:
        """Yield the spans that are a whole judged text between two lines that enclose a quotation."""
        starts = [0, *(found.end() for found in re.finditer("\n", self._text))]
        ends = [*(start - 1 for start in starts[1:]), len(self._text)]
        lines = [self._text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        fences = {place for place, line in enumerate(lines) if _DELIMITER.match(line)}
        for shown in self._shown:
            whole = [line.strip() for line in shown.strip().split("\n")]
            # A long text has words that reveal a repetition.
            for place in fences if len(whole) <= _MOST_DELIMITED else ():
                end = place + 1 + len(whole)
                if end in fences and lines[place + 1 : end] == whole:
                    yield starts[place + 1], ends[end - 1]

    def _is_quoted(self, unit: _Unit) -> bool:
        if _covers(self._spans, unit.start, unit.end) or _covers(self._blocks, unit.start, unit.end):
            return True
        start, _ = self._line(unit)
        return _MARKED_LINE.match(self._text, start, unit.start) is not None

    @cached_property
    def _blocks(self) -> list[tuple[int, int]]:
        """The insides of fences, elements, inline code and quotation marks."""
        blocks = [span.span() for span in _SPEECH.finditer(self._text)]
        opened: dict[str, re.Match[str]] = {}
        begins: dict[str, int] = {}
        ends: dict[str, int] = {}
        for fence in _ANY_FENCE.finditer(self.masked((), self.quoted_lines)):
            mark = fence["ticks"][0]
            if mark not in opened:
                opened[mark] = fence
            elif fence["ticks"].startswith(opened[mark]["ticks"]) and not fence["info"].strip():
                blocks.append((opened.pop(mark).end(), fence.start()))
            begins.setdefault(mark, fence.end())
            ends[mark] = fence.start()
        # With an odd number of fences it is unknown which fences form a pair.
        blocks += [(begins[mark], ends[mark]) for mark in opened if begins[mark] < ends[mark]]
        opens: dict[str, list[int]] = {}
        last: dict[str, int] = {}
        for tag in _ELEMENT.finditer(self._text):
            name = tag[2].lower()
            if tag[2] in self._names or not _QUOTES.fullmatch(name):
                continue
            if not tag[1]:
                opens.setdefault(name, []).append(tag.end())
                continue
            if opens.get(name):
                last[name] = opens[name].pop()
            if name in last:
                # A second closing tag: the first one was quoted.
                blocks.append((last[name], tag.start()))
        return _joined([*blocks, *_inline_code(self._text)])

    def _stands(self, unit: _Unit) -> bool:
        """Return True for a unit alone in its line, or at the end of the turn's first or last line."""
        start, end = self._line(unit)
        if self._has_words(unit.end, end):
            return False
        thought = self._text.rfind("</think>", 0, start)
        return (
            not self._has_words(start, unit.start)
            or not self._has_words(end, len(self._text))
            or not self._has_words(max(0, thought), start)
        )

    def _has_words(self, start: int, end: int) -> bool:
        first, last = (bisect_left(self._starts, place) for place in (start, end))
        return self._words[first] < self._words[last]

    def _line(self, unit: _Unit) -> tuple[int, int]:
        end = self._text.find("\n", unit.end)
        return self._text.rfind("\n", 0, unit.start) + 1, len(self._text) if end < 0 else end


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans that do not overlap and cover the same characters, in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _covers(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    place = bisect_right(spans, (start, len(spans) and spans[-1][1])) - 1
    return place >= 0 and spans[place][0] <= start and end <= spans[place][1]


def _inline_code(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span from the first to the last run of backticks of each line."""
    for line in _TICKED_LINE.finditer(text):
        yield line.span()


def _units(text: str, marks: Marks, tokens: re.Pattern[str], names: Sequence[str]) -> list[_Unit]:
    """Return the elements, and the tags that belong to none, in order."""
    units: list[_Unit] = []
    opened: re.Match[str] | None = None

    def single(tag: re.Match[str]) -> _Unit:
        name = "".join(tag[0].split()) if tag["name"] is None else tag["close"] + _name(tag["name"], names)
        return _Unit((name, ""), tag.start(), tag.end(), (tag.start(),))

    for tag in tokens.finditer(text):
        name = None if tag["name"] is None else _name(tag["name"], names)
        if name not in marks.elements:
            units.append(single(tag))
        elif not tag["close"]:
            if opened is not None:
                units.append(single(opened))
            opened = tag
        elif opened is not None and _name(opened["name"], names) == name:
            body = "".join(text[opened.end() : tag.start()].split()).casefold()
            units.append(_Unit((name, body), opened.start(), tag.end(), (opened.start(), tag.start())))
            opened = None
        else:
            units.append(single(tag))
    if opened is not None:
        units.append(single(opened))
    return sorted(units, key=lambda unit: unit.start)


def _runs(text: str, shown: Sequence[str], words: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (start, end, number, first, last): `text[start:end]` repeats `shown[number][first:last]`.

    `words[i]` is the number of letters and digits, apart from tags, before the position i of the text.
    """
    seeds: dict[str, list[tuple[int, int]]] = {}
    for number, one in enumerate(shown):
        for place in range(0, len(one) - _GRAM + 1, _GRAM):
            found = seeds.setdefault(one[place : place + _GRAM], [])
            if len(found) < _MOST_SEEDS:
                found.append((number, place))
    place = done = 0
    while place <= len(text) - _GRAM:
        best: tuple[int, int, int, int, int] | None = None
        for number, at in seeds.get(text[place : place + _GRAM], ()):
            back = 0
            while (
                place - back > done
                and at - back > 0
                and text[place - back - 1] == shown[number][at - back - 1]
            ):
                back += 1
            size = back + _common(text, place, shown[number], at)
            run = (place - back, place - back + size, number, at - back, at - back + size)
            if best is None or size > best[1] - best[0]:
                best = run
        if best is not None and _is_run(best, shown, words):
            yield best
            place = done = best[1]
        else:
            # A long run of tags is not compared again from every one of its characters.
            place = max(place + 1, 0 if best is None else best[1] - 2 * _GRAM)
    for number, one in enumerate(shown):
        if _GRAM * 2 > len(one) > 0:
            at = text.find(one)
            while at >= 0:
                if _is_run((at, at + len(one), number, 0, len(one)), shown, words):
                    yield at, at + len(one), number, 0, len(one)
                at = text.find(one, at + len(one))


def _is_run(run: tuple[int, int, int, int, int], shown: Sequence[str], words: Sequence[int]) -> bool:
    start, end, number, first, last = run
    whole = last - first == len(shown[number])
    return words[end] - words[start] >= (_SHORTEST_WHOLE if whole else _SHORTEST)


def _common(one: str, i: int, other: str, j: int) -> int:
    """Return the length of the common start of `one[i:]` and `other[j:]`."""
    size, step = 0, _GRAM
    while step:
        ours, theirs = one[i + size : i + size + step], other[j + size : j + size + step]
        if len(ours) == step and ours == theirs:
            size, step = size + step, step * 2
        else:
            step //= 2
    return size
