"""The options of every command that judges rows: the judge, the run and its cost."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from tirjudge.batch import Plan
from tirjudge.cli.judging_options import JudgingOptions
from tirjudge.judging import Kind
from tirjudge.spending import Price
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(JudgingOptions):
    """As they were typed; `taking` gives them to a command."""

    pointwise: Annotated[bool, typer.Option("--pointwise", help="Score every response alone.")] = False
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Which of two responses is better.")] = False
    listwise: Annotated[bool, typer.Option("--listwise", help="Which of three or more is the best.")] = False
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many rows.")] = None
    truncate: Annotated[
        int | None, typer.Option(min=100, metavar="CHARACTERS", help="Cut longer responses in the middle.")
    ] = None
    give_up_after: Annotated[
        int, typer.Option(min=0, help="Rows in a row that fail for the model's or sandbox's sake; 0: never.")
    ] = 50
    price_in: Annotated[float | None, typer.Option(min=0, help="Of a million tokens read.")] = None
    price_out: Annotated[float | None, typer.Option(min=0, help="Of a million tokens written.")] = None
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Stop before this is passed; in the prices' currency.")
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Judge all anew.")] = False

    def plan(self, columns: Columns = DEFAULT_COLUMNS, labels: dict[str, str] | None = None) -> Plan:
        return Plan(
            kind=self._kind(),
            columns=columns,
            labels=labels,
            truncate=self.truncate,
            limit=self.limit,
            concurrency=self.concurrency,
            give_up_after=self.give_up_after,
        )

    def price(self) -> Price | None:
        """None where no price is given; raises ValueError for half of one, and for a limit without one."""
        if self.price_in is None and self.price_out is None and self.max_cost is None:
            return None
        if self.price_in is None or self.price_out is None:
            raise ValueError("money needs both prices: give --price-in and --price-out")
        return Price(self.price_in, self.price_out)

    def _kind(self) -> Kind | None:
        wanted: dict[Kind, bool] = {
            "pointwise": self.pointwise,
            "pairwise": self.pairwise,
            "listwise": self.listwise,
        }
        kinds = [kind for kind, is_wanted in wanted.items() if is_wanted]
        asked_for = ["format"] * bool(self.format) + [*kinds]
        if len(asked_for) > 1:
            raise ValueError(f"--{asked_for[0]} and --{asked_for[1]} exclude each other")
        return kinds[0] if kinds else None


def taking(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `options` is a class of options takes each of them from the command line."""
    wanted: type[JudgingOptions] = get_type_hints(command)["options"]
    hints = get_type_hints(wanted, include_extras=True)
    theirs = [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=hints[option.name]
        )
        for option in fields(wanted)
    ]
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "options"]

    @wraps(command)
    def taken(**values: Any) -> None:
        options = wanted(**{option.name: values.pop(option.name) for option in theirs})
        command(**values, options=options)

    together = [*own, *theirs]
    taken.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]
    taken.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
    del taken.__wrapped__
    return taken
