"""Readers of a model's turn, in linear time: programs, forged outputs, answer tags and elements."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

PROGRAM = "python"
OUTPUT = "output"

_OF_PYTHON = ("python", "python3", "py", "")
_FENCE_LINE = re.compile(r"^(?P<indent>[ \t]*+)(?P<ticks>`{3,}+)(?P<info>[^`\n]*+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block. Offsets are into the turn's text."""

    info: str
    """The text after the opening backticks, stripped: `python`, `output`, `json`, or empty."""
    start: int
    """Start of the opening line."""
    body_start: int
    body_end: int
    end: int
    """End of the closing line and its newline; the length of the text if the fence is never closed."""
    indent: int
    """Number of white-space characters before the opening backticks."""
    closed: bool


def find_fences(text: str, tools: Collection[str] = ()) -> tuple[Fence, ...]:
    """Return the fenced blocks of a text, as CommonMark reads backtick fences, with two differences.

    A fence may have any indentation, and an open program, or call of one of the `tools`, also closes at a
    line that opens an output.
    """
    fences = []
    opening: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text):
        if opening is None:
            opening = line
        elif line["info"].strip() == OUTPUT and _requests(opening["info"].strip(), tools):
            fences.append(_fence(text, opening, line.start(), line.start(), closed=True))
            opening = line
        elif not line["info"].strip() and len(line["ticks"]) >= len(opening["ticks"]):
            fences.append(_fence(text, opening, line.start(), line.end() + 1, closed=True))
            opening = None
    if opening is not None:
        fences.append(_fence(text, opening, len(text), len(text), closed=False))
    return tuple(fences)


def _requests(info: str, tools: Collection[str]) -> bool:
    return info == PROGRAM or info in tools


def _fence(text: str, opening: re.Match[str], body_end: int, end: int, *, closed: bool) -> Fence:
    return Fence(
        info=opening["info"].strip(),
        start=opening.start(),
        body_start=min(opening.end() + 1, len(text)),
        body_end=body_end,
        end=min(end, len(text)),
        indent=len(opening["indent"]),
        closed=closed,
    )


def _body(text: str, fence: Fence) -> str:
    """Return the content of a fence without the indentation of its opening line."""
    body = text[fence.body_start : fence.body_end]
    return re.sub(rf"^[ \t]{{1,{fence.indent}}}", "", body, flags=re.M) if fence.indent else body


@dataclass(frozen=True, slots=True)
class Tag:
    """An opening or closing tag, `<name>` or `</name>`, outside every request."""

    opens: bool
    start: int
    end: int


@dataclass(frozen=True)
class Turn:
    """One turn: all text that the model wrote since the prompt or the last output."""

    text: str
    tools: tuple[str, ...] = ()
    """Names of the tools besides Python whose calls are fences with the name of the tool."""
    runs: bool = True
    """False if the judge calls nothing by fences, so that a program in the text is text."""

    @cached_property
    def fences(self) -> tuple[Fence, ...]:
        return find_fences(self.text, self.tools)

    @cached_property
    def program(self) -> Fence | None:
        """The first closed program, or call of another tool, of the turn, which is the one to run."""
        return next((one for one in self.fences if one.closed and _requests(one.info, self.tools)), None)

    @property
    def tool(self) -> str:
        """The name of the tool that the turn calls; empty for a program."""
        return "" if self.program is None or self.program.info == PROGRAM else self.program.info

    @property
    def source(self) -> str:
        """The program, or the arguments, without the indentation of the fence; empty without a request."""
        return "" if self.program is None else _body(self.text, self.program)

    @cached_property
    def awaited(self) -> Fence | None:
        """The output fence that the model opened after its program and left empty for the real output."""
        if self.program is None:
            return None
        following = self.fences[-1]
        between = self.text[self.program.end : following.start]
        within = self.text[following.body_start :]
        is_next = following.start >= self.program.end and not between.strip()
        empty = following.info == OUTPUT and not following.closed and not within.strip()
        return following if is_next and empty else None

    @property
    def request_end(self) -> int:
        """Offset where the request ends: after the program, or after the output fence opened for it."""
        if self.program is None or self.awaited is not None:
            return len(self.text)
        return self.program.end

    @property
    def before_open_request(self) -> str:
        """The text before a request without an end, which a model that was cut was writing."""
        last = self.fences[-1] if self.runs and self.fences else None
        opened = last is not None and not last.closed and _requests(last.info, self.tools)
        return self.text[: last.start] if last is not None and opened else self.text

    @property
    def forged(self) -> tuple[Fence, ...]:
        """The output blocks that the model wrote itself."""
        return tuple(fence for fence in self.fences if fence.info == OUTPUT and fence is not self.awaited)

    @property
    def unclosed(self) -> tuple[Fence, ...]:
        """The fences without an end, except an output fence that waits for the sandbox."""
        return tuple(fence for fence in self.fences if not fence.closed and fence is not self.awaited)

    def tags(self, name: str) -> tuple[Tag, ...]:
        """Return the tags of this name outside requests, in order: also those in open and in other fences."""
        found = []
        requests = [one for one in self.fences if one.closed and _requests(one.info, self.tools)]
        # Tags and fences are both in order, so one pass over each keeps this linear.
        fences = iter((*(requests if self.runs else ()), None))
        fence = next(fences)
        for match in _tag_pattern(name).finditer(self.text):
            while fence is not None and fence.end <= match.start():
                fence = next(fences)
            if fence is None or match.start() < fence.start:
                found.append(Tag(opens=not match[1], start=match.start(), end=match.end()))
        return tuple(found)

    def answer(self, name: str) -> str | None:
        """Return the stripped content of the last `<name>` element; None if missing or not closed."""
        tags = self.tags(name)
        if len(tags) < 2 or tags[-1].opens or not tags[-2].opens:
            return None
        return self.text[tags[-2].end : tags[-1].start].strip()


@lru_cache(maxsize=32)
def _tag_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(name)}>")


_THINKING = "think"


@dataclass(frozen=True, slots=True)
class Element:
    """An element `<name> ... </name>` of a judge's answer. Offsets are into the text."""

    body: str
    """The stripped content; it contains no tag of the same name."""
    start: int
    end: int


def elements(text: str, name: str) -> tuple[Element, ...]:
    """Return the closed elements of this name in order; of nested ones only the innermost."""
    found = []
    opened: re.Match[str] | None = None
    for tag in _tag_pattern(name).finditer(text):
        if not tag[1]:
            opened = tag
        elif opened is not None:
            body = text[opened.end() : tag.start()].strip()
            found.append(Element(body, opened.start(), tag.end()))
            opened = None
    return tuple(found)


def tag_count(text: str, name: str) -> tuple[int, int]:
    """Count the tags `<name>` and `</name>` in the text."""
    return text.count(f"<{name}>"), text.count(f"</{name}>")


def behind_thinking(text: str) -> str | None:
    """Return the text after the last `</think>`; the whole text if there is no thinking.

    None if the thinking is not closed: what looks like an answer there is part of the thinking.
    """
    return behind(text, _THINKING)


def behind(text: str, name: str) -> str | None:
    """Return the text after the last `</name>`, as `behind_thinking` does for the element `think`."""
    head, closed, rest = text.rpartition(f"</{name}>")
    if f"<{name}>" in rest:
        return None
    return rest if closed else head + rest


_THINKING_TAGS = (
    *((f"<{name}>", f"</{name}>") for name in (_THINKING, "thinking", "thought", "reasoning", "seed:think")),
    *(("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|START_THINKING|>", "<|END_THINKING|>")),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    # gpt-oss writes its thinking to another channel; the second form lacks the special tokens.
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("analysis", "assistantfinal"),
)


def without_thinking(text: str) -> str:
    """Return a response without the thinking at its start, if a closing tag ends it; else the response.

    A chat template may have opened the thinking: then only a closing tag on a line of its own ends it.
    """
    for opening, closing in _THINKING_TAGS:
        head, closed, rest = text.partition(closing)
        alone = opening not in head and not head.rpartition("\n")[2].strip() and rest[:1] in ("", "\n", "\r")
        if closed and (alone or head.lstrip().startswith(opening)):
            return without_thinking(rest.lstrip())
    return text


def code_of(response: str) -> str:
    """Return the longest fence of Python or without a language; otherwise the whole response."""
    fences = [fence for fence in find_fences(response) if fence.info.lower() in _OF_PYTHON]
    return max((_body(response, fence) for fence in fences), key=len, default=response)
