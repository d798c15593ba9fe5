"""`tirjudge score` scores stored verdicts under named protocols, and `tirjudge compare` compares two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict, Field

from tirjudge.cli.options import takes_options, with_groups
from tirjudge.cli.output import SOME_FAILED, examples, one_line_errors, option
from tirjudge.cli.score_options import (
    JunitOption,
    MetaJudgeOption,
    MetaJudgeUrlOption,
    ScoreOutput,
    StoredOptions,
)
from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT
from tirjudge.records.verdicts import Confidence
from tirjudge.storage.run_settings import Option


class ScoreOptions(BaseModel):
    """The options of `tirjudge score`, its files apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    seed: Annotated[int, Field(ge=0), Option("Output", "--seed")] = 0
    """Seed of the bootstrap."""
    timeout: Annotated[
        float, Field(gt=0, allow_inf_nan=False), Option("Meta judge", "--timeout", "SECONDS")
    ] = TIMEOUT
    """Time that the meta judge's endpoint may take for one answer before the request is repeated."""
    retries: Annotated[int, Field(ge=0), Option("Meta judge", "--retries")] = RETRIES
    """Further attempts of a request to the meta judge."""


def split_words(words: Sequence[str], *, columns: bool) -> tuple[list[str], list[str]]:
    """Return the files and the `PART=PLACE` among the words of a command, such as those a shell's glob adds.

    With `columns`, a word that begins with a part's name and `=`, and is no file, names a column.
    """
    from tirjudge.evaluation.stored_outputs.columns import VerdictColumns

    places = [
        word
        for word in words
        if columns and word.partition("=")[0] in VerdictColumns.parts() and not Path(word).exists()
    ]
    return [word for word in words if word not in places], places


def judges_columns(columns: Sequence[str]) -> list[list[str]]:
    """Return the `PART=PLACE` of each judge of a table: parts that are given several times tell them apart.

    Raises ValueError for parts that are given unequally often.
    """
    given: dict[str, list[str]] = {}
    for column in columns:
        given.setdefault(column.partition("=")[0], []).append(column)
    counts = {part: len(places) for part, places in given.items() if len(places) > 1}
    if len(set(counts.values())) > 1:
        often = ", ".join(f"{part} {count} times" for part, count in counts.items())
        raise ValueError(f"--column has {often}: give each part of a verdict once for each judge")
    number = max(counts.values(), default=1)
    return [[places[judge % len(places)] for places in given.values()] for judge in range(number)]


@examples(
    "tirjudge score judgebench.verdicts.jsonl --protocol both-orders",
    "tirjudge score published.jsonl --column prediction=verdict --column label=winner",
)
@takes_options("score")
def score(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Stored outputs, of tirjudge or others. Several files or a glob are one run, - is standard "
            "input.",
        ),
    ] = None,
    protocols: Annotated[bool, option("Output", "List the protocols.", "--protocols")] = False,
    published: Annotated[
        str, option("Output", "List published figures on a benchmark.", metavar="BENCHMARK")
    ] = "",
    calibrate: Annotated[
        Path | None,
        option(
            "Calibration",
            "File of people's labels: measure agreement with them, variance, and risk against coverage.",
            metavar="LABELS",
        ),
    ] = None,
    confidence: Annotated[
        Confidence | None,
        option("Calibration", "Confidence that orders the verdicts.  [default: vote-share]"),
    ] = None,
    target_risk: Annotated[
        float | None,
        option(
            "Calibration",
            "Choose a threshold for this risk on one half of the rows, and verify it on the other.",
            metavar="SHARE",
        ),
    ] = None,
    rerun: Annotated[
        list[Path] | None,
        option(
            "Calibration",
            "A further run over the same rows, as another sample of each. Repeatable.",
            metavar="FILE",
        ),
    ] = None,
    junit: JunitOption = None,
    meta_judge: MetaJudgeOption = "",
    meta_judge_url: MetaJudgeUrlOption = "",
    *,
    output: ScoreOutput,
    stored: StoredOptions,
    options: ScoreOptions,
) -> None:
    """Score stored verdicts, or calibrate them with people's labels.

    Prints one line to quote for each protocol. Exit codes: 0 done, 1 one of several requested protocols
    cannot score the rows or a target risk is not met, 2 usage, or no protocol can score the rows.
    """
    from tirjudge.cli.calibration import calibrated, show
    from tirjudge.cli.score_output import (
        print_protocols,
        print_published,
        print_scored,
        stored_files,
        with_matchings,
    )
    from tirjudge.evaluation.junit import write_junit
    from tirjudge.evaluation.protocols import all_protocols

    output.check()
    if output.table and (protocols or published or calibrate is not None):
        raise ValueError("--as is for scores: leave it out, or --protocols, --published and --calibrate")
    if protocols:
        return print_protocols([one.card for one in all_protocols()], as_json=output.as_json)
    if published:
        return print_published(published, as_json=output.as_json)
    files, places = split_words(words or [], columns=bool(stored.column))
    if not files:
        raise ValueError("give a file of stored verdicts (--protocols lists the protocols)")
    columns, calibrates = [*(stored.column or ()), *places], calibrate is not None
    opened, meaning = stored_files(stored, columns, calibrates=calibrates)
    run = opened([Path(file) for file in files])
    if calibrate is None:
        if confidence is not None or target_risk is not None or rerun:
            raise ValueError("--confidence, --target-risk and --rerun belong to --calibrate LABELS")
        run = with_matchings(
            run, meta_judge, meta_judge_url, timeout=options.timeout, retries=options.retries
        )
        fits = print_scored("score", run, output, seed=options.seed)
        if junit:
            write_junit(junit, run)
        raise typer.Exit(0 if fits else SOME_FAILED)
    if output.protocol or junit:
        raise ValueError("--calibrate measures a run under no protocol: leave out --protocol and --junit")
    measured = calibrated(
        run,
        labels=calibrate,
        confidence=confidence or "vote-share",
        target_risk=target_risk,
        reruns=[opened([one]) for one in rerun or ()],
        meaning=meaning,
        seed=options.seed,
    )
    show(measured, full=output.full, as_json=output.as_json)
    raise typer.Exit(0 if measured.reached else SOME_FAILED)


@examples(
    "tirjudge compare before.verdicts.jsonl after.verdicts.jsonl",
    "tirjudge compare first.verdicts.jsonl second.verdicts.jsonl third.verdicts.jsonl --full",
    "tirjudge compare judged.csv --column prediction=judge_1 --column prediction=judge_2",
)
@with_groups
def compare(
    first: Annotated[Path, typer.Argument(metavar="FILE", help="Stored outputs, as for tirjudge score.")],
    others: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Further runs over the same rows, each compared with the first. A table with the columns of "
            "several judges needs none: --column prediction=COLUMN once for each.",
        ),
    ] = None,
    seed: Annotated[int, option("Output", "Seed of the bootstrap.", min=0, metavar="N")] = 0,
    fail_if_worse: Annotated[
        bool,
        option(
            "Output",
            "Exit with code 1 if a run is significantly worse than the first, for CI.",
            "--fail-if-worse",
        ),
    ] = False,
    *,
    output: ScoreOutput,
    stored: StoredOptions,
) -> None:
    """Compare runs over the same rows: differences with intervals, from the first run to each other one.

    With --full also the agreement of the judges and the difference that so many rows could show. Prints one
    line to quote for each protocol. Exit codes: 0 done, 1 one of several requested protocols cannot score the
    rows, or with --fail-if-worse a run is worse: interval and test exclude that it is not; 2 usage, or no
    protocol can score the rows.
    """
    from tirjudge.cli.score_output import print_compared, stored_files, with_matchings

    with one_line_errors("compare"):
        output.check()
        files, judges = [first, *(others or ())], judges_columns(stored.column or ())
        if len(files) == 1:
            files *= len(judges)
        if len(judges) == 1:
            judges *= len(files)
        if len(files) < 2:
            raise ValueError("give two files, or one and --column prediction=COLUMN for each of two judges")
        if len(files) != len(judges):
            raise ValueError(f"{len(files)} files, and columns of {len(judges)} judges: give one file")
        runs = []
        for file, columns in zip(files, judges, strict=True):
            opened, _ = stored_files(stored, columns)
            run = with_matchings(opened([file]))
            own = [one.partition("=")[2] for one in columns if any(one not in other for other in judges)]
            if own:
                run.name = f"{run.name} {own[0]}" if len(set(files)) > 1 else own[0]
            runs.append(run)
        fits = print_compared(runs, output, seed=seed, fail_if_worse=fail_if_worse)
    raise typer.Exit(0 if fits else SOME_FAILED)
