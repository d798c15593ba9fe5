"""The source interface: which rows of a public dataset are read, and which question each row asks."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast, get_args

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_sandbox import Sandbox
from tirjudge_sandbox.registry import Plugins

Kind = Literal["pointwise", "pairwise", "listwise"]
KINDS: tuple[Kind, ...] = ("pointwise", "pairwise", "listwise")
Need = Literal["generators", "sandbox"]
Columns = TypeVar("Columns", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCard:
    """A source's dataset, licence and requirements."""

    dataset: str
    """The dataset's id on the hub, `owner/name`."""
    parts: tuple[tuple[str | None, str], ...] = ((None, "train"),)
    """(configuration, split) pairs to read; None is the only configuration, `*` stands for every one."""
    domain: str
    """The domain of the rows. In `safety` and `helpfulness` a judge should run no program."""
    about: str
    """One line: rows taken from the dataset, and the selection rule."""
    licence: str
    """The licence that the dataset states; empty if it states none."""
    needs: frozenset[Need] = frozenset()
    """Requirements of `fill`."""
    files: str | None = None
    """The only file to read, for a repository whose files have different columns."""
    repeats: bool = False
    """Allow several questions with the same prompt; otherwise only the first one is taken."""


class ChatTurn(BaseModel):
    """One turn of a conversation, in the columns that most chat datasets use."""

    role: Literal["system", "user", "assistant"]
    content: str

    @property
    def message(self) -> Message:
        return Message(self.role, self.content)


@dataclass(frozen=True)
class SourceItem:
    """A prompt with its known good and bad answers."""

    prompt: tuple[Message, ...]
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    known: Mapping[str, Any] = field(default_factory=dict)
    """JSON data by which `fill` tells good from bad answers."""
    domain: str = ""
    """Unless empty, overrides the card's domain."""
    row: Mapping[str, Any] | None = None
    """The other columns of a finished row, in `read_task`'s form; passed through unchanged."""
    origin: str = ""
    """The row's place in the dataset; set by the reader, not by the source."""

    @cached_property
    def key(self) -> str:
        """A hash of the prompt, 16 hexadecimal digits."""
        return _digest(*(part for message in self.prompt for part in (message.role, message.content)))

    @cached_property
    def whole_key(self) -> str:
        """A hash of the prompt and everything known about it, 16 hexadecimal digits."""
        # For sources with several questions per prompt, which must get different ids.
        return _digest(self.key, json.dumps([self.good, self.bad, self.known, self.row]))

    def answered(self, good: Sequence[str], bad: Sequence[str]) -> SourceItem:
        """Return the question with these answers, duplicates removed."""
        return replace(self, good=tuple(dict.fromkeys(good)), bad=tuple(dict.fromkeys(bad)))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is left out of the corpus."""

    reason: str
    """A few words. Rows are counted by reason, so the same reason must have the same words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A generator's answer to a prompt."""

    model: str
    text: str


class Sampler(Protocol):
    """The configured generators; each gives the same number of answers per prompt."""

    async def answers(self, key: str, prompt: Sequence[Message]) -> list[Answer]:
        """Return all answers, model by model, in a stable order; they are cached under `key`.

        An answer that a model cannot give (a content filter, a context too short) is missing from the list.
        Raises NotAnswered.
        """


class Source(ABC, Generic[Columns]):
    """A reader of one public dataset. It holds no state: every row is read independently."""

    card: ClassVar[SourceCard]
    row: ClassVar[type[BaseModel]]
    """The columns that are read, with their types: `X` of a `Source[X]`, unless it is set. A row without them
    stops the build with a message."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        given = [one for base in vars(cls).get("__orig_bases__", ()) for one in get_args(base)]
        if given and "row" not in vars(cls):
            cls.row = given[0]

    @abstractmethod
    def question(self, row: Columns) -> SourceItem | Skipped:
        """Return the question that a row asks, or why the row is left out."""

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        """Add good and bad answers to a question whose row does not contain them.

        The result must depend on the question and the sampler's answers alone, so that a resumed build gives
        the same rows.
        """
        return question


SOURCES = Plugins(
    "tirjudge.sources",
    "source",
    "tirjudge_training.corpora.sources",
    {
        "code-rm": "code_and_constraints:CodeRm",
        "code-preference-pairs": "preference_pairs:CodePreferencePairs",
        "dapo-bigmath": "sampled_answers:DapoBigmath",
        "help-steer-3": "preference_pairs:HelpSteer3",
        "help-steer-3-checklists": "checklists:HelpSteer3Checklists",
        "judge-lm": "preference_pairs:JudgeLm",
        "loong": "sampled_answers:Loong",
        "math": "sampled_answers:Math",
        "math-step-dpo": "preference_pairs:MathStepDpo",
        "s1": "sampled_answers:S1",
        "safe-rlhf": "preference_pairs:SafeRlhf",
        "skywork": "preference_pairs:Skywork",
        "tulu-3": "code_and_constraints:Tulu3",
        "ultra-interact": "preference_pairs:UltraInteract",
        "web-instruct": "sampled_answers:WebInstruct",
        "wild-chat": "sampled_answers:WildChat",
    },
)
"""All sources. Each member is called without arguments and returns a `Source`."""


def open_source(name: str) -> Source[Any]:
    """Return the source of that name; raises ValueError, in one line, for an unknown name."""
    return cast(Source[Any], SOURCES.open(name))


def _digest(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        # The separator keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(part.encode("utf-8", "surrogatepass") + b"\x1f")
    return digest.hexdigest()
