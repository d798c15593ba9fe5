"""The options of a compilation, for the command and for Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tirjudge.compilation.admission import MIN_AGREEMENT
from tirjudge.compilation.authors import Author
from tirjudge.compilation.compiler import Compilation, compile_rows, measure_rows, ruled_row
from tirjudge.compilation.examples import RuledRow
from tirjudge.data.rows import Row
from tirjudge.generation.base import Generator
from tirjudge.generation.endpoint.options import EndpointOptions
from tirjudge.generation.spending import MeteredGenerator, Spending
from tirjudge.judging.judge_model import open_model
from tirjudge.judging.options import JudgeOptions, SandboxOptions, endpoint_key
from tirjudge.judging.questions import listed_rows
from tirjudge.storage.run_settings import Option
from tirjudge_environments.checkers.file import CheckerFile
from tirjudge_environments.checkers.runner import CheckerRunner
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import Columns
from tirjudge_sandbox.blocking import EventLoopThread


class CompileOptions(EndpointOptions, SandboxOptions):
    """The author of checkers, their sandbox, and what admits them."""

    max_tokens: Annotated[int, Field(ge=1), Option("Model", "--max-tokens")] = 2048
    """Tokens of one answer of the model."""
    min_agreement: Annotated[float, Field(ge=0, lt=1), Option("Compiling", "--min-agreement", "SHARE")] = (
        MIN_AGREEMENT
    )
    """Lower bound that the agreement of an admitted checker exceeds."""
    seed: Annotated[int, Field(ge=0), Option("Compiling", "--seed")] = 0
    """Seed of the prompts for choosing and for measuring."""

    def check(self, rows: Sequence[RuledRow]) -> None:
        """Raise ValueError, in one line, for an author without an address, and for rows without rules."""
        if self.base_url and not self.model:
            raise ValueError("an endpoint needs the model's name: give --model")
        if not rows:
            raise ValueError("there is no row that can be read")
        if not self.model and not any(row.criteria for row in rows):
            raise ValueError(
                "no row has rules: give the rows criteria, or --rules FILE, or a --model that lists them"
            )


def rules_of_file(rules: Sequence[str], measured: CheckerFile | None = None) -> tuple[str, ...]:
    """Return the rules of rows without criteria: `rules`, or those of the file that is measured.

    Raises ValueError, in one line, for rules that no file of checkers may have.
    """
    if isinstance(rules, str):
        raise ValueError("rules must be a list of texts")
    if not rules:
        return () if measured is None else measured.rules
    try:
        return CheckerFile(rules=tuple(rules)).rules
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


async def compiled(
    rows: Sequence[RuledRow],
    options: CompileOptions,
    file: CheckerFile | None = None,
    *,
    api_key: str | None = None,
) -> Compilation:
    """Compile the rules of rows, or measure the checkers of a file, in a sandbox that is opened for it.

    Raises GeneratorFailed, SandboxUnavailable and CheckersDown.
    """
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(options.closed_sandbox())
        runner, author = CheckerRunner(sandbox, seed=options.seed), None
        if file is not None:
            return await measure_rows(
                file, rows, runner, min_agreement=options.min_agreement, seed=options.seed
            )
        if options.model:
            author = Author(_author(options, stack, api_key), options.max_tokens)
        return await compile_rows(
            rows, runner, author=author, min_agreement=options.min_agreement, seed=options.seed
        )


def _author(options: CompileOptions, stack: AsyncExitStack, api_key: str | None) -> Generator:
    """Open the model that writes checkers, at an endpoint or in this process."""
    if not options.base_url:
        chosen = JudgeOptions(model=options.model, base_url="", concurrency=options.concurrency)
        return open_model(chosen, Spending(), stack).generator
    generator = options.open_endpoint(endpoint_key(api_key))
    stack.push_async_callback(generator.close)
    return MeteredGenerator(generator, Spending())


def compile_checkers(
    rows: Iterable[Mapping[str, Any]],
    *,
    rules: Sequence[str] = (),
    measure: CheckerFile | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    api_key: str | None = None,
    **options: Any,
) -> Compilation:
    """Compile the rules of rows into checkers; `.file.text()` of the result is the file.

    Rows are those of `Judge.batch`, or rows of result files as mappings. `rules` belong to rows without
    criteria. With `measure` the checkers of that file are measured instead, and without `rules` its rules
    are kept. Further options are those of `tirjudge compile`: `model`, `base_url`, `min_agreement`, `seed`
    and those of the sandbox. It also works in a notebook.

    Raises RowError for a row that cannot be read, ValueError for a wrong option, GeneratorFailed,
    SandboxUnavailable and CheckersDown.
    """
    try:
        chosen = CompileOptions(**options)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    known = rules_of_file(rules, measure)
    places = Columns.parse([f"{part}={place}" for part, place in (columns or {}).items()])
    given = listed_rows(rows)
    ruled = [
        ruled_row(Row(f"row {number}", f"item-{number}", row), places, labels, known)
        for number, row in enumerate(given, 1)
    ]
    chosen.check(ruled)
    thread = EventLoopThread("tirjudge-compile")
    try:
        found = thread.run(compiled(ruled, chosen, measure, api_key=api_key))
    finally:
        thread.close()
    found.file = found.file.model_copy(update={"rules": known})
    return found
