"""The parts of RM-R1's chain of rubrics: category, rubric, weights, solution and quotations (Fig. 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tirjudge_environments.turn_reader import Element, elements

CHATBOTS = ("A", "B")

_PERCENTAGE = re.compile(r"(?<![0-9.])([0-9]{1,3}(?:\.[0-9]{1,3})?)\s?%", re.ASCII)
_GROUND = {"Reasoning": "solution", "Chat": "rubric"}
"""The element that each category of task is judged by."""


@dataclass(frozen=True)
class ChainOfRubrics:
    """The text that a judge wrote after its thinking; any of the elements may be missing."""

    text: str

    @cached_property
    def answer(self) -> Element | None:
        """The last `<answer>` element."""
        return next(reversed(elements(self.text, "answer")), None)

    @property
    def answer_is_quoted(self) -> bool:
        """True if the answer is inside a quotation, and so a chatbot's and not the judge's."""
        answer = self.answer
        quotations = (element for found in self._quotations.values() for element in found)
        return answer is not None and any(one.start < answer.start < one.end for one in quotations)

    @property
    def category(self) -> str | None:
        """`Reasoning` or `Chat`; None for anything else."""
        category = self._first("type")
        return category if category in _GROUND else None

    def parsed(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the parts that exist as JSON values; `order[i]` is the candidate shown as chatbot i.

        Texts: `type`, `solution`, `rubric` without its justification, and `justify`. Lists: `weights`, the
        percentages that the rubric names, and by candidate `quotes` and `summaries`.
        """
        rubric, justify = self._rubric
        found = {
            "type": self._first("type"),
            "rubric": rubric,
            "weights": [float(weight) for weight in _PERCENTAGE.findall(rubric)],
            "justify": justify,
            "solution": self._first("solution"),
            "quotes": self._by_candidate("quote", order),
            "summaries": self._by_candidate("summary", order),
        }
        return {name: value for name, value in found.items() if value}

    def follows_figure_3(self) -> bool:
        """Return True for a category, its rubric or solution, an evaluation and an answer, none empty."""
        return self.category is not None and self._has("type", _GROUND[self.category], "eval", "answer")

    def follows_figure_6(self) -> bool:
        """Return True if rubric, evaluation and answer are all there and not empty."""
        return self._has("rubric", "eval", "answer")

    def ends_with_answer(self) -> bool:
        """Return True for an answer with nothing after it."""
        return self._has("answer")

    def _has(self, *names: str) -> bool:
        """Return True if these elements follow each other, each complete, and the last one ends the text."""
        position = 0
        for name in names:
            found = elements(self.text, name)
            element = next((one for one in found if one.start >= position and one.body), None)
            if element is None or not _is_whole(name, element.body):
                return False
            position = element.end
        return not self.text[position:].strip()

    def _first(self, name: str) -> str:
        return next((element.body for element in elements(self.text, name) if element.body), "")

    @property
    def _rubric(self) -> tuple[str, str]:
        """The rubric without its justification, and the justification."""
        rubric = self._first("rubric")
        for justify in elements(rubric, "justify"):
            return (
                f"{rubric[: justify.start].rstrip()}\n{rubric[justify.end :].lstrip()}".strip(),
                justify.body,
            )
        return rubric, ""

    def _by_candidate(self, kind: str, order: Sequence[int]) -> dict[str, list[str]]:
        found = {
            str(candidate): [one.body for one in self._quotations[f"{kind}_{chatbot}"] if one.body]
            for chatbot, candidate in zip(CHATBOTS, order, strict=True)
        }
        return {candidate: bodies for candidate, bodies in found.items() if bodies}

    @cached_property
    def _quotations(self) -> Mapping[str, tuple[Element, ...]]:
        names = [f"{kind}_{chatbot}" for kind in ("quote", "summary") for chatbot in CHATBOTS]
        return {name: elements(self.text, name) for name in names}


def _is_whole(name: str, body: str) -> bool:
    """Check that a rubric has a justification, and that an evaluation quotes or sums up both chatbots."""
    if name == "rubric":
        return _some(body, "justify")
    if name == "eval":
        return all(_some(body, f"quote_{x}") or _some(body, f"summary_{x}") for x in CHATBOTS)
    return True


def _some(body: str, name: str) -> bool:
    return any(element.body for element in elements(body, name))
