"""Instruction following: responses checked by programs, and counted as IFEval does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tirjudge.data.rows import BadRow, Row
from tirjudge.judging.batch import Failure
from tirjudge.statistics import Proportion
from tirjudge_environments.instruction_checks import Followed, MissingExtra, followed, verifiers_of
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task

Strictness = Literal["strict", "loose"]
INSTRUCTIONS = "instruction_id_list"


@dataclass(frozen=True, slots=True)
class CheckedResponse:
    """A response with the instructions that it follows."""

    id: str
    names: tuple[str, ...]
    """Names of the prompt's instructions."""
    followed: Followed


@dataclass(slots=True)
class FollowingTally:
    """IFEval's four accuracies (section 2.3), and the same by kind of instruction."""

    _prompts: dict[Strictness, list[bool]] = field(default_factory=lambda: {"strict": [], "loose": []})
    _instructions: dict[Strictness, dict[str, list[bool]]] = field(
        default_factory=lambda: {"strict": defaultdict(list), "loose": defaultdict(list)}
    )

    def add(self, checked: CheckedResponse) -> None:
        """Count one response."""
        held: dict[Strictness, Sequence[bool]] = {
            "strict": checked.followed.strict,
            "loose": checked.followed.loose,
        }
        for reading, holds in held.items():
            self._prompts[reading].append(all(holds))
            for name, one in zip(checked.names, holds, strict=True):
                self._instructions[reading][name].append(one)

    def prompts(self, reading: Strictness) -> Proportion:
        """Return the share of responses that follow all of their instructions."""
        return _proportion(self._prompts[reading])

    def instructions(self, reading: Strictness, name: str | None = None) -> Proportion:
        """Return the share of instructions that are followed: of all, or of one kind."""
        by_name = self._instructions[reading]
        return _proportion([one for kind in by_name if name in (None, kind) for one in by_name[kind]])

    @property
    def names(self) -> list[str]:
        """Kinds of instructions that were counted, sorted."""
        return sorted(self._instructions["strict"])


def instructions_by_prompt(rows: Iterable[Row | BadRow]) -> dict[str, Mapping[str, Any]]:
    """Index rows with instructions by the text of their prompt.

    Raises ValueError, in one line, for a row without a prompt or instructions.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if isinstance(row, BadRow):
            raise ValueError(f"{row.where}: {row.reason}")
        prompt = row.fields.get("prompt")
        if not isinstance(prompt, str) or INSTRUCTIONS not in row.fields:
            raise ValueError(f"{row.where}: no text `prompt` with an `{INSTRUCTIONS}`")
        found[prompt] = row.fields
    return found


def check(
    rows: Iterable[Row | BadRow],
    instructions: Mapping[str, Mapping[str, Any]],
    columns: Columns = DEFAULT_COLUMNS,
) -> Iterator[CheckedResponse | Failure]:
    """Yield every response in order with the instructions that it follows, or the reason why it failed.

    The instructions are the row's own, otherwise those of its prompt; in a conversation, of the last message.
    Raises MissingExtra.
    """
    for row in rows:
        try:
            yield _check(row, instructions, columns)
        except MissingExtra:
            raise
        except ValueError as error:
            yield Failure(row.where, None, str(error))


def _check(
    row: Row | BadRow, instructions: Mapping[str, Mapping[str, Any]], columns: Columns
) -> CheckedResponse:
    if isinstance(row, BadRow):
        raise RowError(row.reason)
    task = read_task(row.fields, default_id=row.default_id, columns=columns)
    if len(task.candidates) != 1:
        raise RowError(f"a row must have one response, this one has {len(task.candidates)}")
    asked = row.fields if INSTRUCTIONS in row.fields else instructions.get(task.prompt[-1].content)
    if asked is None:
        raise RowError(f"no {INSTRUCTIONS} for this prompt; pass --prompts FILE")
    return CheckedResponse(
        task.id, tuple(asked[INSTRUCTIONS]), followed(verifiers_of(asked), task.candidates[0])
    )


def _proportion(held: Sequence[bool]) -> Proportion:
    return Proportion(sum(held), len(held))
