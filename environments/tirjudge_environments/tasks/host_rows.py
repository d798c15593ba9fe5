"""Rows of the programs that train or evaluate a policy, and the completions that it wrote for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from inspect import signature
from typing import Any, ClassVar, Self

from tirjudge_environments.messages import message_data, response_data
from tirjudge_environments.quoting import without_ends
from tirjudge_environments.tasks.cells import RowError, is_empty, plain, type_name
from tirjudge_environments.tasks.columns import ColumnPlaces
from tirjudge_environments.tasks.conversion import read_task
from tirjudge_environments.tasks.messages import read_messages, response_of
from tirjudge_environments.types import JudgeTask, Response

_OF_VERL = ("reward_router_address", "reward_model_tokenizer")
"""Keywords that verl adds to those of its configuration."""
_UNREAD = "-"
"""The response with which a row is read: what a policy wrote is no cell of a table, whatever it reads as."""


class HostColumns(ColumnPlaces):
    """The places in a host's row of what its completion is judged by; an empty one is none.

    A place that is named and that a row does not have is an error: it may be misspelt.
    """

    MAY_BE_LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"reference", "criteria", "group"})

    prompt: str = "prompt"
    reference: str = ""
    """A reference answer: a text, a number, or a list of them."""
    criteria: str = ""
    """Criteria as `judge` reads them: a text, or a list of texts and objects; an empty list is none."""
    group: str = ""
    """A name that distinguishes groups of the same prompt."""

    def batch(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any], tokenizer: Any
    ) -> list[HostRow]:
        """Read a batch as TRL hands it over, with columns by their names; raises RowError."""
        held = {name: one for name, one in columns.items() if isinstance(one, list | tuple)}
        held = {name: one for name, one in held.items() if len(one) == len(prompts)}
        tokens = special_tokens(tokenizer)
        return [
            HostRow.read(
                {**{name: values[place] for name, values in held.items()}, "prompt": prompt},
                completion,
                self,
                where=f"row {place}",
                tokens=tokens,
            )
            for place, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]


@dataclass(frozen=True, slots=True)
class HostRow:
    """A completion with the row of its host."""

    task: JudgeTask
    """The task whose only candidate is the completion."""
    group: str
    as_text: bool
    """True if the prompt was a text, and no list of messages."""

    @classmethod
    def read(
        cls,
        row: Mapping[str, Any],
        completion: Any,
        columns: HostColumns,
        *,
        where: str,
        tokens: frozenset[str] = frozenset(),
    ) -> Self:
        """Read a row, and a completion as a text or messages of any form; raises RowError with `where`.

        `tokens` are the special tokens of the policy's tokenizer, if they are known.
        """
        try:
            found = {part: columns.find(row, part) for part in HostColumns.model_fields}
            group = "" if found["group"] is None else str(found.pop("group"))
            found |= {"criteria": None} if found["criteria"] == [] else {}
            task = read_task({**found, "response": _UNREAD}, default_id="")
        except RowError as error:
            has = f"; it has {', '.join(map(str, row))}" if str(error).startswith("no column") else ""
            raise RowError(f"{where}: {error}{has}") from None
        said = read_completion(completion, f"the completion of {where}", tokens)
        return cls(replace(task, candidates=(said,)), group, isinstance(found["prompt"], str))

    @classmethod
    def of_verl(
        cls,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None,
        further: Mapping[str, Any],
        known: Callable[..., Any],
        **keys: str | None,
    ) -> Self:
        """Read the arguments that verl gives the reward function `known`, with unknown ones in `further`.

        The row is `extra_info`, with `ground_truth` under this name. Raises ValueError for a keyword that is
        neither an argument of the function nor verl's own: it may be misspelt.
        """
        arguments = [*signature(known).parameters, *_OF_VERL]
        for name in further:
            if name not in _OF_VERL:
                close = get_close_matches(name, arguments, 1)
                meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(arguments)}"
                raise ValueError(f"reward_kwargs has no {name!r}; {meant}")
        columns = HostColumns(**{part: key or "" for part, key in keys.items()})
        row = {"ground_truth": ground_truth, **(extra_info or {})}
        tokens = special_tokens(further.get("reward_model_tokenizer"))
        return cls.read(row, solution_str, columns, where=f"a row of {data_source!r}", tokens=tokens)

    @property
    def completion(self) -> str | list[dict[str, Any]]:
        """The completion as the judge's requests have it."""
        return response_data(self.task.candidates[0])

    @property
    def question(self) -> dict[str, Any]:
        """The prompt, the reference and the criteria, as the judge's requests have them."""
        asked = self.task.prompt
        return {
            "prompt": asked[0].content if self.as_text and len(asked) == 1 else [*map(message_data, asked)],
            "reference": self.task.reference or None,
            "criteria": [asdict(criterion) for criterion in self.task.criteria] or None,
        }


def read_completion(completion: Any, name: str, tokens: frozenset[str] = frozenset()) -> Response:
    """Return what a policy wrote, without its end of turn and padding; raises RowError with `name`.

    A completion with calls of tools is a transcript, and of any other the last message counts; messages may
    lack a content. See `quoting.without_ends` for `tokens`.
    """
    said = plain(completion)
    if is_empty(said) or said == []:
        return ""
    if not isinstance(said, str | list | Mapping):
        raise RowError(f"{name} is {type_name(said)}, neither a text nor messages")
    read = said if isinstance(said, str) else response_of(read_messages(said, name, silent=True))
    if isinstance(read, str):
        return without_ends(read, tokens)
    return tuple(replace(one, content=without_ends(one.content, tokens)) for one in read)


def special_tokens(tokenizer: Any) -> frozenset[str]:
    """Return the special tokens of a tokenizer of Hugging Face; none without one."""
    return frozenset(map(str, getattr(tokenizer, "all_special_tokens", ())))
