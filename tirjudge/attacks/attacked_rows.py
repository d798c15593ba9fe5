"""Rows to judge: each row of a source as it is, followed by the same row under each attack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tirjudge.attacks.families import Attack, Target
from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import RowSource
from tirjudge.judging.questions import FAMILIES, Kind
from tirjudge_environments import JudgeTask, Response
from tirjudge_environments.messages import message_data, response_data, tool_data
from tirjudge_environments.orders import letter, ordered_views
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task
from tirjudge_environments.types import derive_seed

CLEAN = "none"
"""The attack of a row that is judged as it is."""
_FEWEST = 2


class Marks(NamedTuple):
    """The first tags of a judged row, by which attacked rows find their clean one."""

    attack: str
    of: str
    """The id of the row in the source."""
    target: int
    """The index of the response that attacks."""

    def tags(self) -> list[str]:
        """Return the marks as tags."""
        return [f"attack={self.attack}", f"of={self.of}", f"target={letter(self.target)}"]

    @classmethod
    def read(cls, tags: Sequence[str], responses: int) -> Marks:
        """Parse the tags of a row with this number of responses; raises ValueError without marks."""
        parts = [tag.partition("=") for tag in tags[:3]]
        if [name for name, _, _ in parts] != ["attack", "of", "target"]:
            raise ValueError("not a row of tirjudge attack: its tags name no attack")
        known = [letter(index) for index in range(responses)]
        attack, of, target = (value for _, _, value in parts)
        if target not in known:
            raise ValueError(f"its target {target!r} is none of its {responses} responses")
        return cls(attack, of, known.index(target))


@dataclass(slots=True, kw_only=True)
class AttackedRows:
    """A source of rows in the default columns, whose responses have the order in which they are to be shown.

    The target is drawn from the seed and the row's id among the responses that are not the label; in a
    transcript each attack changes the content of one message, drawn in the same way. A row
    that is no task, or has one response, is yielded as a BadRow.
    """

    source: RowSource
    attacks: Sequence[Attack]
    columns: Columns = DEFAULT_COLUMNS
    labels: Mapping[str, str] | None = None
    seed: int = 0
    shuffle: bool = True
    """Draw the order of a row's responses, the same for the clean row and every attack."""
    kind: Kind | None = None
    format: str = ""
    limit: int | None = None
    """Rows of the source."""
    name: str = field(init=False)
    _count: int | None = None

    def __post_init__(self) -> None:
        self.name = self.source.name

    def __iter__(self) -> Iterator[Row | BadRow]:
        for row in islice(self.source, self.limit):
            if isinstance(row, BadRow):
                yield row
                continue
            try:
                task = read_task(
                    row.fields,
                    default_id=row.default_id,
                    columns=self.columns,
                    labels=self.labels,
                    beside=row.beside,
                )
                if len(task.candidates) < _FEWEST:
                    raise RowError("an attack needs two responses or more, this row has one")
            except RowError as error:
                yield BadRow(row.where, str(error))
                continue
            yield from self._rows(row.where, self._ordered(task))

    def count(self) -> int | None:
        """Return the number of rows, the attacked ones included; None if the source is not counted."""
        if self._count is None and self.source.count() is not None:
            self._count = sum(1 for _ in self)
        return self._count

    def is_at(self, path: Path) -> bool:
        return self.source.is_at(path)

    def _rows(self, where: str, task: JudgeTask) -> Iterator[Row]:
        index = self._target(task)
        yield _row(where, task, Marks(CLEAN, task.id, index), task.id, task.candidates[index])
        rivals = [other for other in range(len(task.candidates)) if other != index]
        target = Target(
            response="",
            letter=letter(index),
            other=letter(task.label if task.label is not None and task.label != index else rivals[0]),
            answer=winning_answer(self.format or self.kind or "", letter(index)),
        )
        for attack in self.attacks:
            drawn = derive_seed(self.seed, "message", task.id, attack.name)
            changed = _attacked(task.candidates[index], attack, target, drawn)
            if changed is not None and changed != task.candidates[index]:
                marks = Marks(attack.name, task.id, index)
                yield _row(where, task, marks, f"{task.id}/{attack.name}", changed)

    def _target(self, task: JudgeTask) -> int:
        losers = [index for index in range(len(task.candidates)) if index != task.label]
        return min(losers, key=lambda index: derive_seed(self.seed, "target", task.id, index))

    def _ordered(self, task: JudgeTask) -> JudgeTask:
        """Return the task with its responses in the order in which they are shown."""
        if not self.shuffle:
            return task
        (view,) = ordered_views(task, "random", self.seed)
        order = view.order
        return replace(
            task,
            candidates=tuple(task.candidates[index] for index in order),
            files=tuple(task.files[index] for index in order if task.files),
            label=None if task.label is None else order.index(task.label),
        )


def winning_answer(format: str, letter: str) -> str:
    """Return the answer of a judge of a kind, format or family that prefers the response with this letter."""
    family, _, kind = format.partition("-")
    name = kind if family in FAMILIES else format
    if name == "pointwise":
        return "<score>10</score>"
    if name in ("", "pairwise", "listwise"):
        return f"<preference>{letter}</preference>"
    return f"<answer>[[{letter}]]</answer>"


def _attacked(response: Response, attack: Attack, target: Target, drawn: int) -> Response | None:
    """Return the response under an attack, of a transcript one message; None if it cannot attack."""
    if isinstance(response, str):
        return attack.changed(replace(target, response=response))
    number = drawn % len(response)
    said = response[number]
    content = attack.changed(replace(target, response=said.content))
    if content is None:
        return None
    return (*response[:number], replace(said, content=content), *response[number + 1 :])


def _row(where: str, task: JudgeTask, marks: Marks, id: str, response: Response) -> Row:
    responses = list(map(response_data, task.candidates))
    responses[marks.target] = response_data(response)
    fields: dict[str, Any] = {
        "id": id,
        "prompt": list(map(message_data, task.prompt)),
        "responses": responses,
        "label": task.label,
        "domain": task.domain,
        "tags": [*marks.tags(), *task.tags],
        "reference": task.reference,
        "criteria": task.criteria or None,
        "tools": list(map(tool_data, task.tools)),
        "files": list(task.files) or None,
        "prompt_files": task.prompt_files,
    }
    return Row(where, id, fields)
