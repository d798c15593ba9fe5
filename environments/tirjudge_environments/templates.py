"""Prompt templates: data files with slots, filled in one pass so that braces in a candidate stay text.

These are the slots; anything else in braces is plain text:

* `{prompt}`: the judged conversation, with the reference answer and the criteria if the task has any (see
  `question_text`).
* `{response}`: the only response of a pointwise view.
* `{response A}`, `{response B}`, ...: the response shown under that letter.
* `{each}` ... `{/each}`: a block that is repeated for every response of the view, in order; inside,
  `{letter}` is its letter and `{response}` its text. This is how lists of any length are written.

A response never ends its section or opens another one: a line of it that reads as a line of the template
next to a slot (`Response B:`, `[The End of Assistant A's Answer]`) is quoted (see `quoting`).

A file of TIR-Judge is `prompts/{family}-{kind}.txt`, where kind is `pointwise`, `pairwise` or `listwise`,
with `-no-tools` for the text-only prompt and `-calls` for native tool calls. A file holds the prompt and a
newline at its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from typing import Self

from pydantic import Field, model_validator

from tirjudge_environments.files.listing import listing
from tirjudge_environments.messages import conversation_text, is_transcript, texts_of, tools_text
from tirjudge_environments.orders import letters
from tirjudge_environments.quoting import Reads, quote_lines, unmarked, visible
from tirjudge_environments.types import Criterion, FrozenModel, JudgeTask, derive_seed

_FOLDER = files("tirjudge_environments") / "prompts"
_SLOT = re.compile(r"\{(prompt|response|response [A-Z]+|letter)\}")
_EACH = re.compile(r"\{each\}(.*?)\{/each\}", re.DOTALL)
_LETTER = re.compile(r"\\{letter\\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt text with slots."""

    text: str

    def fill(self, prompt: str, responses: Sequence[str]) -> str:
        """Return the prompt for these responses in this order; raises ValueError if a slot does not fit."""
        responses = [quote_lines(response, _section_line(self.text, _SLOT)) for response in responses]
        values = {"prompt": prompt}
        if len(responses) == 1:
            values["response"] = responses[0]
        named = dict(zip(letters(len(responses)), responses, strict=True))
        values |= {f"response {name}": response for name, response in named.items()}
        parts = _EACH.split(self.text)
        for position, part in enumerate(parts):
            if position % 2:
                parts[position] = "".join(
                    _fill(part, values | {"letter": name, "response": response})
                    for name, response in named.items()
                )
            else:
                parts[position] = _fill(part, values)
        return "".join(parts)

    def with_values(self, values: Mapping[str, str]) -> str:
        """Fill the slots `{name}` for each key of `values` in one pass; no other slot is known."""
        slots = re.compile(rf"\{{({'|'.join(map(re.escape, values))})\}}")
        quoted = {name: quote_lines(value, _section_line(self.text, slots)) for name, value in values.items()}
        return slots.sub(lambda slot: quoted[slot[1]], self.text)


def _fill(text: str, values: Mapping[str, str]) -> str:
    def value(slot: re.Match[str]) -> str:
        if slot[1] not in values:
            raise ValueError(f"the prompt template has a slot {slot[0]} that this view cannot fill")
        return values[slot[1]]

    return _SLOT.sub(value, text)


@lru_cache(maxsize=64)
def _section_line(template: str, slots: re.Pattern[str]) -> Reads:
    """Return a function that is True for lines that read like a line next to a slot of the template.

    A line alone before or after a slot is read by all its text, and a line with a slot in it by the text
    before the slot.
    """
    lines = re.sub(r"\{/?each\}", "", template).split("\n")
    found = [next((slot for slot in slots.finditer(line) if slot[0] != "{letter}"), None) for line in lines]
    whole, heads = set[str](), set[str]()
    for number, slot in enumerate(found):
        if slot is None:
            continue
        head = lines[number][: slot.start()]
        # The `<` of a frame has no word: lines of any markup begin with it, and the frame's tag is unique.
        if re.search(r"\w", head) and re.sub(r"\{letter\}", "", head).strip():
            heads.add(head)
        for beyond in (range(number - 1, -1, -1), range(number + 1, len(lines))):
            # The nearest line with text. A line with a slot has been read by its head.
            nearest = next((other for other in beyond if lines[other].strip()), None)
            if nearest is not None and found[nearest] is None:
                whole.add(lines[nearest])
    patterns = [*map(_marker, sorted(whole)), *(f"{_marker(head)}.*" for head in sorted(heads))]
    marker = re.compile("|".join(patterns) or "(?!)", re.DOTALL)
    return lambda line: marker.fullmatch(unmarked(line)) is not None


def _marker(line: str) -> str:
    """Return a pattern for a line of a template as `unmarked` returns it; `{letter}` is any letter or AA."""
    return _LETTER.sub("[a-z]{1,2}", re.escape(unmarked(visible(line))))


@lru_cache(maxsize=64)
def load_template(name: str) -> Template:
    """Load `prompts/{name}.txt`; raises ValueError with the known names if it is missing."""
    if name not in _template_names():
        raise ValueError(f"no prompt template {name!r}; there are {', '.join(_template_names())}")
    return Template((_FOLDER / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n"))


@cache
def _template_names() -> tuple[str, ...]:
    return tuple(sorted(entry.name.removesuffix(".txt") for entry in _FOLDER.iterdir()))


def prompt_families(part: str = "pairwise") -> tuple[str, ...]:
    """Return the families of TIR-Judge's prompts that have a part, by the names that a person may give."""
    mark, known = "-pairwise-no-tools", _template_names()
    families = (name.removesuffix(mark) for name in known if name.endswith(mark))
    return tuple(family for family in families if f"{family}-{part}" in known)


class PromptExample(FrozenModel):
    """A question with its answer, which the judge reads before the question that is asked."""

    prompt: str
    responses: tuple[str, ...] = Field(min_length=1)
    """As many as the question that is asked has, or three or more for a list: else it is not shown."""
    answer: str
    """All that the judge writes, in the form that the prompt asks for."""


_COUNTS = {"pointwise": 1, "pairwise": 2, "listwise": 3}
_PARTS = tuple(f"{kind}{variant}" for kind in _COUNTS for variant in ("", "-no-tools", "-calls"))


class OwnPrompts(FrozenModel):
    """Prompts of one's own for TIR-Judge's formats."""

    system: str = ""
    """The system message; empty for none."""
    texts: Mapping[str, str] = Field(default_factory=dict)
    """Prompt texts with slots by kind, with `-no-tools` and `-calls` as the files of a family. A kind without
    any has TIR-Judge's."""
    examples: tuple[PromptExample, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, text in self.texts.items():
            if name not in _PARTS:
                raise ValueError(f"texts.{name}: there is no such text; the names are {', '.join(_PARTS)}")
            # So many that only a block of `{each}` shows a whole list.
            count = 30 if name.startswith("listwise") else _COUNTS[name.partition("-")[0]]
            marks = [f"\0{number}\0" for number in range(count + 1)]
            try:
                shown = Template(text).fill(marks[0], marks[1:])
            except ValueError as error:
                raise ValueError(f"texts.{name}: {error}") from None
            if any(mark not in shown for mark in marks):
                raise ValueError(f"texts.{name} needs a slot {{prompt}}, and one for each response")
        return self

    def template(self, kind: str, variant: str) -> Template:
        """Return the text of a kind; raises ValueError for a kind of which only other variants are there."""
        if f"{kind}{variant}" in self.texts:
            return Template(self.texts[f"{kind}{variant}"])
        if others := [name for name in self.texts if name.partition("-")[0] == kind]:
            raise ValueError(f"these prompts have texts.{others[0]}, and no texts.{kind}{variant}")
        return load_template(f"tir-{kind}{variant}")

    def shown_before(self, kind: str) -> tuple[PromptExample, ...]:
        """Return the examples with as many responses as a kind has."""
        return tuple(one for one in self.examples if min(len(one.responses), 3) == _COUNTS[kind])


def question_text(task: JudgeTask, family: str = "") -> str:
    """Return the judge's question: the judged conversation, tools, reference answer and criteria.

    Every part except a conversation without tool calls is framed by a tag that no text of the task contains,
    so no text can end its part or forge another part. Without other parts, the conversation stands alone. In
    a family of prompts with files `{family}-criterion-positive.txt` and `-negative.txt`, criteria, one per
    line, replace the conversation and the tools.
    """
    conversation, tools = conversation_text(task.prompt), tools_text(task.tools)
    shown = (conversation, task.reference, *chain.from_iterable(map(texts_of, task.candidates)))
    texts = (*shown, *(one.text for one in task.criteria), *([tools] if tools else []))
    reference = [_framed("reference", "reference", task.reference, texts)] if task.reference else []
    if task.criteria and f"{family}-criterion-positive" in _template_names():
        return "\n\n".join([*(_in_one_line(one, family) for one in task.criteria), *reference])
    if is_transcript(task.prompt):
        conversation = _framed("conversation", "conversation", conversation, texts)
    offered = [_framed("tools", "tools", tools, texts)] if tools else []
    given = task.prompt_files
    files = [_framed("prompt-files", "files", listing(given, "the prompt"), texts)] if given.files else []
    asked = [conversation, *files, *offered, *reference]
    if not task.criteria:
        return "\n\n".join(asked)
    criteria = [_framed(f"criterion-{one.polarity}", "criterion", one.text, texts) for one in task.criteria]
    return "\n\n".join([*asked, load_template("criteria").text, *criteria])


def _in_one_line(criterion: Criterion, family: str) -> str:
    # Headings such as `Response A:` begin a line, which a text without line breaks cannot do.
    text = " ".join(criterion.text.split())
    return load_template(f"{family}-criterion-{criterion.polarity}").with_values({"text": text})


def _framed(template: str, name: str, text: str, texts: Sequence[str]) -> str:
    # The tag is a hash of the shown text, so no text can contain its own tag.
    number = 0
    while True:
        tag = f"{name}-{derive_seed(name, number, *texts):08x}"
        if not any(tag in one for one in texts):
            return load_template(template).with_values({"tag": tag, "text": text})
        number += 1
