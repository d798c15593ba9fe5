"""TIR-Judge's pointwise format: a score from 1 to 10 for each response alone (TIR Fig. 7 and 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.formats.reward_terms import Scored, scored_apart
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import single_views
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.types import Episode, JudgeTask, Response, Unscored, Verdict, View

_ANOTHER = """\
# A week by the sea

We arrived on Monday, 3 June, at 14:30. The house has 4 rooms, a garden and a view of the harbour.

- Breakfast costs 12 euros.
- The nearest shop is 1.5 km away!

Would we come again? Yes: "every year, if we can," as my brother said. See https://example.org or write to
house@example.org.

```python
print(sum([1, 2, 3]))
```
"""
"""The other response where a row has only one: prose with numbers, a list, a quotation and code."""
_NUMBER = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?", re.ASCII)


class TirPointwise(TirFormat):
    """A format in which the judge sees one response and answers `<score>7</score>`, from 1 to 10.

    The score may have decimals.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<score>7</score>`, from 1 to 10, decimals allowed",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf]); Rc for all views if the better one scores higher",
        source="TIR-Judge section 4.2, Fig. 7, without tools Fig. 10",
    )

    scale: ClassVar[tuple[float, float]] = (1.0, 10.0)
    kind: ClassVar[str] = "pointwise"
    tag: ClassVar[str] = "score"

    evidence: RewardOnly[Literal["off", "recorded"]] = "off"
    """`recorded` runs every successful program again with an empty response, and if it prints the same, with
    another response; a verdict is decided by the program if one of these runs prints something else. Our own
    option."""

    @model_validator(mode="after")
    def _evidence_fits(self) -> Self:
        if self.evidence != "off" and (self.exact or not self.bindings):
            raise ValueError("evidence exchanges the variables of programs, which `bindings` gives them")
        return self

    @property
    def linked(self) -> bool:
        return True

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, view: View, answer: str) -> Verdict | None:
        if not _NUMBER.fullmatch(answer) or not self.scale[0] <= float(answer) <= self.scale[1]:
            return None
        return Verdict(scores={view.order[0]: float(answer)})

    def exchanged(self, task: JudgeTask, view: View) -> tuple[dict[str, Any], ...]:
        if self.evidence == "off":
            return ()
        alone = replace(view, order=(0,))
        return tuple(
            self._bindings(replace(task, candidates=(other,), files=files), alone)
            for other, files in _others(task, view.order[0])
        )

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        """Score all views together, since the labelled response must score highest (TIR Eq. 3)."""
        return scored_apart(episode, [self.replay(episode.task, one) for one in episode.trajectories])


def _others(task: JudgeTask, shown: int) -> Iterator[tuple[Response, tuple[Folder, ...]]]:
    """Yield the responses, with their files, on which the program of candidate `shown` runs again.

    The first is empty; the others are the other candidates or, without any, an everyday text.
    """
    nothing = (Folder(),) if task.files else ()
    rest = (*range(shown + 1, len(task.candidates)), *range(shown))
    yield "", nothing
    yield from ((task.candidates[index], task.files[index : index + 1]) for index in rest)
    if not rest:
        yield _ANOTHER, nothing
