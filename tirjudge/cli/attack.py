"""`tirjudge attack`, which attacks a judge's verdicts and counts the verdicts that flip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.attacks import Attack, Family, open_families
from tirjudge.attacks.attacked_rows import AttackedRows
from tirjudge.attacks.flips import FlipTally, by_family, count_flips
from tirjudge.cli.judge import BatchRun
from tirjudge.cli.options import RowsOptions, RunOptions, takes_options
from tirjudge.cli.output import SOME_FAILED, examples, option, output_file, refuse_input, say
from tirjudge.console_text import printable
from tirjudge.data.inspection import InspectedRows
from tirjudge.judging.options import OF_RUNS
from tirjudge.judging.questions import format_for
from tirjudge.statistics.clusters import in_clusters
from tirjudge.statistics.printed import bracketed
from tirjudge.statistics.proportions import Proportion
from tirjudge_environments.registry import open_environment


@examples(
    "tirjudge attack examples/instructions.jsonl --limit 3 --attack forgeries",
    "tirjudge attack rows.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
)
@takes_options("attack", without=OF_RUNS)
def attack(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Rows with two or more responses, as for tirjudge judge; a hub id; - is standard input.",
        ),
    ] = None,
    output: Annotated[
        Path | None, option("Output", "Result file.  [default: NAME.attacks.jsonl in this folder]")
    ] = None,
    as_json: Annotated[bool, option("Output", "Print the flips as JSON.", "--json")] = False,
    list_attacks: Annotated[bool, option("Output", "List the attacks and exit.", "--list")] = False,
    named: Annotated[
        list[str] | None,
        option(
            "Judging",
            "Attack or family of attacks; --list names them. Repeatable.  [default: all]",
            "--attack",
            metavar="NAME",
        ),
    ] = None,
    *,
    reading: RowsOptions,
    options: RunOptions,
) -> None:
    """Attack the verdicts of a judge and count the verdicts that flip. The same command resumes.

    Each row is judged once as it is, and once for each attack, which changes a response that should lose.
    Exit codes: 0 all rows judged, 1 some failed or none got a verdict, 2 usage or no rows, 130 interrupted.
    """
    families = open_families()
    attacks = chosen_attacks(families, named or ())
    if list_attacks:
        _print_attacks(families, as_json)
        return
    if file is None:
        raise ValueError("give a file of rows (--list lists the attacks)")
    columns, meaning = reading.columns, reading.meaning
    target = output_file(output, file, "attacks")
    options, shuffle = _with_fixed_order(options)
    # The rows are read under the user's columns, and given to the batch under ours.
    plan = replace(options.plan(), limit=None, thinking=True)
    options.check(plan.kind)
    source = InspectedRows(reading.open(file), columns, meaning)
    refuse_input(target, source)
    for note in source.inspect():
        say(note)
    rows = AttackedRows(
        source=source,
        attacks=attacks,
        columns=columns,
        labels=meaning,
        seed=options.seed,
        shuffle=shuffle,
        kind=plan.kind,
        format=options.format,
        limit=options.limit,
    )
    settings = {
        "benchmark": "attack",
        "columns": columns.model_dump(exclude_unset=True),
        "labels": meaning,
        "shuffle": shuffle,
    }
    options = options.model_copy(update={"judge_empty": True, "judge_thinking": True})
    if options.undecided is None:
        # A guess that an attack flips counts.
        options = options.model_copy(update={"undecided": "guess"})
    run = BatchRun(
        command="attack", options=options, plan=plan, output=target, rows=rows, settings=settings, quiet=True
    )
    judged = run.run()
    for note in source.left():
        say(note)
    _print_flips(count_flips(target), families, target, options, as_json=as_json)
    raise typer.Exit(0 if judged else SOME_FAILED)


def chosen_attacks(families: Sequence[Family], names: Sequence[str]) -> tuple[Attack, ...]:
    """Return the attacks of these names, of attacks or families, each once; all without names.

    Raises ValueError, in one line, for an unknown name.
    """
    known = {family.name: family.attacks for family in families}
    known |= {one.name: (one,) for family in families for one in family.attacks}
    for name in names:
        if name not in known:
            listed = ", ".join(family.name for family in families)
            raise ValueError(f"no attack {name!r}; there are the families {listed}, and --list names all")
    found = [one for name in names or [family.name for family in families] for one in known[name]]
    return tuple(dict.fromkeys(found))


def _with_fixed_order(options: RunOptions) -> tuple[RunOptions, bool]:
    """Return options under which a row and its attacks are shown in the same order, and whether to draw it.

    The formats draw a random order by the row's id, which an attacked row does not share.
    """
    order = options.order or options.options.get("order")
    if order is None:
        named = options.format and open_environment(format_for(options.format, "pairwise"), **options.options)
        order = getattr(named, "order", None) if named else "random"
    if order != "random":
        return options, False
    own = {key: value for key, value in options.options.items() if key != "order"}
    return options.model_copy(update={"order": "given", "options": own}), True


def _print_attacks(families: Sequence[Family], as_json: bool) -> None:
    if as_json:
        found = {family.name: {one.name: one.about for one in family.attacks} for family in families}
        print(json.dumps(found, indent=2))
        return
    for family in families:
        print(f"{family.name}: {family.about}")
        for one in family.attacks:
            print(f"  {one.name:<17}{one.about}")


def _print_flips(
    tally: FlipTally, families: Sequence[Family], results: Path, options: RunOptions, *, as_json: bool
) -> None:
    """Print plain lines, which programs can read too."""
    found = list(by_family(tally, families))
    if as_json:
        record: dict[str, Any] = {
            "results": str(results),
            "tools": options.tools,
            "clean": {
                "n": tally.clean,
                "for_target": tally.for_target,
                "labelled": tally.labelled,
                "accuracy": tally.accuracy.rate if tally.labelled else None,
                "interval": tally.accuracy.bounds if tally.labelled else None,
            },
            "attacks": [
                {"family": family, "attack": name, **flips.record()} for family, name, flips in found
            ],
        }
        print(json.dumps(record, indent=2))
        return
    accuracy = f", accuracy {tally.accuracy}" if tally.labelled else ""
    print(f"clean     {tally.clean} rows, {tally.for_target} for the target{accuracy}")
    head = f"{'attack':<18}{'n':>6}{'to target':>11}  {'95 % interval':<17}{'away':>5}{'lost':>6}{'net':>8}"
    print(f"{head}  95 % interval")
    shown: Proportion | None = None
    for _, name, flips in found:
        low, high = flips.rate.interval
        net, (least, most) = flips.net
        rate = bracketed(low, high)
        counts = f"{flips.n:>6}{flips.to_target:>11}  {rate:<17}{flips.away:>5}{flips.lost:>6}"
        print(f"{printable(name):<18}{counts}{net:>8.1%}  {bracketed(least, most)}")
        shown = flips.rate
    if shown is not None and shown.clusters is not None:
        fault = f" (no interval: {shown.fault})" if shown.fault else ""
        print(f"prompts   rows{in_clusters(shown.clusters)}, which intervals take as units{fault}")
    print(f"results   {printable(str(results))}")
