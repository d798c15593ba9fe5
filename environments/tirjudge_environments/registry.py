"""Judge formats by name, including formats of other packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from tirjudge_environments.base import Environment, JudgeCard, JudgeFormat
from tirjudge_environments.boundary import replaced_marks, shown
from tirjudge_environments.tools.base import Tool
from tirjudge_sandbox.registry import Plugins

ENVIRONMENTS = Plugins(
    "tirjudge.environments",
    "judge format",
    "tirjudge_environments.formats",
    {
        "tir-pointwise": "tir_pointwise:TirPointwise",
        "tir-pairwise": "tir_comparison:TirPairwise",
        "tir-listwise": "tir_comparison:TirListwise",
        "checks-pointwise": "checks:ChecksPointwise",
        "checks-pairwise": "checks:ChecksPairwise",
        "checks-listwise": "checks:ChecksListwise",
        "judgelrm-pair": "judgelrm:JudgeLrmPair",
        "judgelrm-single": "judgelrm:JudgeLrmSingle",
        "j1-pav": "j1:J1PaV",
        "j1-pas": "j1:J1PaS",
        "j1-pavs": "j1:J1PaVS",
        "j1-pos": "j1:J1PoS",
        "rationale": "rationale:Rationale",
        "rm-r1": "rm_r1:RmR1",
    },
)
"""Each member is called with the options of `open_environment` and returns an `Environment`.

`formats/__init__.py` says what else a format of this package needs.
"""

_REWARD_ONLY = "reward only"
Value = TypeVar("Value")
RewardOnly = Annotated[Value, _REWARD_ONLY]
"""The type of an option that only the reward uses, as in `consistency: RewardOnly[bool] = False`.

No prompt and no verdict depends on it, so that the note of a trained model leaves it out.
"""

_MEMBERS = ("linked", "views", "prompt", "read", "questions", "score")


def environment_names() -> tuple[str, ...]:
    """Return the names that `open_environment` accepts, sorted."""
    return ENVIRONMENTS.names()


def open_environment(name: str, /, **options: Any) -> Environment:
    """Open the judge format of this name.

    Raises ValueError, in one line, for an unknown name, for a bad option, and for a plug-in that lacks a
    member of the `Environment` interface.
    """
    try:
        environment = ENVIRONMENTS.open(name, **options)
    except ValueError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        problems = "; ".join(_problem(one) for one in error.__cause__.errors())
        raise ValueError(f"judge format {name!r}: {problems}") from None
    # A missing member would otherwise surface in the middle of a run, where it is first used.
    missing = [member for member in _MEMBERS if not hasattr(environment, member)]
    if missing:
        raise ValueError(
            f"judge format {name!r} lacks {', '.join(missing)}: see tirjudge_environments.Environment"
        )
    return cast(Environment, environment)


def environment_options(name: str) -> frozenset[str]:
    """Return the options that a format declares: the fields of a pydantic model; any other entry has none.

    Raises ValueError for an unknown name.
    """
    entry = ENVIRONMENTS.load(name)
    is_model = isinstance(entry, type) and issubclass(entry, BaseModel)
    return frozenset(entry.model_fields if is_model else ())


def score_scale(name: str) -> tuple[float, float] | None:
    """Return the lowest and the highest score of a format that judges a response alone: its class's `scale`.

    None for a format without one, and for a name that no installed package has.
    """
    if name not in environment_names():
        return None
    scale: tuple[float, float] | None = getattr(ENVIRONMENTS.load(name), "scale", None)
    return scale


def reward_options(environment: Environment) -> frozenset[str]:
    """Return the options of a format that are declared as `RewardOnly`."""
    fields = getattr(type(environment), "model_fields", {})
    return frozenset(name for name, field in fields.items() if _REWARD_ONLY in field.metadata)


def with_options(environment: Environment, **options: Any) -> Environment:
    """Return a copy of a format with other values for declared options.

    Undeclared options are ignored. Raises ValueError, in one line, for a bad value.
    """
    if not isinstance(environment, BaseModel):
        return environment
    kind = type(environment)
    known = {name: value for name, value in options.items() if name in kind.model_fields}
    try:
        return cast(Environment, kind.model_validate({**dict(environment), **known}))
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def offers_tools(environment: Environment) -> bool:
    """Return True for a format that can offer its judge tools besides Python."""
    return "further_tools" in getattr(type(environment), "model_fields", ())


def with_tools(environment: Environment, tools: Sequence[Tool]) -> Environment:
    """Return a copy of a format that offers the judge these tools besides Python.

    Raises ValueError, in one line, for a format that can offer none.
    """
    if not tools:
        return environment
    if not offers_tools(environment):
        raise ValueError(f"{type(environment).__name__} offers its judge no further tools")
    # The description of a tool is a text from outside: its server wrote it.
    specs = shown(tuple(tool.spec for tool in tools), replaced_marks(environment))
    return with_options(environment, further_tools=specs)


def judge_cards() -> dict[str, JudgeCard]:
    """Return the formats' cards by name, sorted."""
    formats = ((entry.name, ENVIRONMENTS.imported(entry)) for entry in ENVIRONMENTS.entries())
    return {name: format.card for name, format in formats if isinstance(format, JudgeFormat)}


def first_fault(error: ValidationError, whole: str = "") -> str:
    """Return pydantic's first error in one line, `field.inner: what is wrong with it`.

    `whole` is the place to name where the error concerns the whole model.
    """
    return fault_line(error.errors(include_url=False, include_input=False)[0], whole)


def fault_line(fault: Mapping[str, Any], whole: str = "") -> str:
    """Return one of pydantic's error dictionaries in one line; `whole` as for `first_fault`."""
    place = ".".join(map(str, fault["loc"])) or whole
    reason = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


def _problem(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"{'.'.join(map(str, error['loc']))}: no such option"
    return fault_line(error)
