"""Stored runs that commands score: opened as options say, and scored as tables and as JSON records."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tirjudge.cli.options import label_values
from tirjudge.cli.output import console, figures_table, say
from tirjudge.cli.paper_tables import (
    agreement_rows,
    comparison_rows,
    evidence_rows,
    print_judges,
    print_table,
    score_rows,
)
from tirjudge.cli.score_options import ScoreOutput, StoredOptions
from tirjudge.console_text import counted, printable
from tirjudge.data.rows import STANDARD_INPUT
from tirjudge.evaluation.benchmarks.rationale_rm import KeptAnswers, Matched, matched
from tirjudge.evaluation.judged_rows import ProtocolCard, ScoringProtocol
from tirjudge.evaluation.judges import JudgesAgreement, judges_agreement, jury_agreement
from tirjudge.evaluation.protocols.agreement import KAPPA, THREE_CLASS
from tirjudge.evaluation.protocols.length_controlled import LENGTH_CONTROLLED
from tirjudge.evaluation.protocols.ratings import RATINGS_PROTOCOL
from tirjudge.evaluation.protocols.win_rate import WIN_RATE, WIN_RATE_OF
from tirjudge.evaluation.published import ANY, PublishedFigure, published
from tirjudge.evaluation.runs import (
    DISAGREEMENT,
    ScoredRun,
    card_record,
    comparison_record,
    default_protocols,
    estimate_record,
    fitting,
    paired_units,
    published_record,
    score_record,
    score_run,
    unlike_sections,
)
from tirjudge.evaluation.scoring import Comparison, Estimate, ProtocolScore, cluster_count, compare, with_holm
from tirjudge.evaluation.stored_outputs.columns import VerdictColumns
from tirjudge.evaluation.stored_outputs.reading import Replay, open_replay
from tirjudge.evaluation.stored_outputs.tirjudge_results import TIRJUDGE_RESULTS
from tirjudge.evaluation.who_won import WhoWon, who_won_decided
from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT
from tirjudge.judging.meta_judge import AnswerStore, MetaJudgeConfig
from tirjudge.statistics.clusters import in_clusters
from tirjudge.statistics.printed import printed_figure
from tirjudge.storage.json_lines import JsonObject, read_lines

_NAMED = 5
"""Rows found in only one of two files that are named; JSON has all rows."""


def stored_files(
    options: StoredOptions, columns: Iterable[str], *, calibrates: bool = False
) -> tuple[Callable[[Sequence[Path]], Replay], dict[str, str] | None]:
    """Return what opens files as one run, and the meaning of the values of labels.

    Reads `--column PART=PLACE` and `--labels` (a file, or the meaning of values: `1=A,2=B,0=tie`). The
    meaning is that of the columns' values too, if there are any. With `calibrates`, it may belong to the
    labels of people instead. Raises ValueError, in one line, for options that do not belong together.
    """
    files, meanings = options.files_and_meanings()
    if len(files) > 1 or len(meanings) > 1:
        raise ValueError("--labels takes one file, and once what the values mean (1=A,2=B,0=tie)")
    places = list(columns)
    stray = bool(meanings) and not calibrates
    if not places and (stray or options.swapped):
        stray_option = "--labels VALUE=LETTER" if stray else "--swapped"
        raise ValueError(f"{stray_option} belongs to --column, which names the columns of a file")
    read, meaning = None, label_values(meanings[0]) if meanings else None
    if places:
        read = VerdictColumns.parse([*places, *(["place_swapped=place_swapped"] if options.swapped else [])])
        read = read.meaning(meaning) if meaning else read
    opened = partial(
        open_replay,
        labels=files[0] if files else None,
        format=options.format,
        columns=read,
        swapped=Path(options.swapped) if options.swapped else None,
        duplicates=options.duplicates,
        cluster=options.cluster,
    )
    return opened, meaning


def with_matchings(
    run: Replay, meta_judge: str = "", base_url: str = "", *, timeout: float = TIMEOUT, retries: int = RETRIES
) -> Replay:
    """Return the run with people's reasons matched; unchanged if no meta judge was ever asked.

    Answers are stored in RESULTS.asked/ and reused. Raises NotAnswered if the model is not available,
    ValueError for stored answers of several models if none is named.
    """
    folder = run.path.with_name(f"{run.path.name or STANDARD_INPUT}.asked")
    if meta_judge and len(run.files.paths) > 1:
        raise ValueError("--meta-judge matches the reasons of one file at a time")
    if meta_judge:
        folder.mkdir(exist_ok=True)
        config = MetaJudgeConfig(model=meta_judge, base_url=base_url, timeout=timeout, retries=retries)
        return run.with_reasons(asyncio.run(_ask(run, config, folder)))
    kept = folder / "asked.jsonl"
    if not kept.exists():
        return run
    answers = _only_model(list(read_lines(kept)), kept)
    return run.with_reasons(asyncio.run(matched(_fields(run), KeptAnswers(answers))))


async def _ask(run: Replay, config: MetaJudgeConfig, folder: Path) -> Matched:
    reward_questions = config.open(kept=AnswerStore(folder), say=say)
    try:
        return await matched(_fields(run), reward_questions)
    finally:
        await reward_questions.close()


def _fields(run: Replay) -> Iterator[Mapping[str, Any]]:
    # The files and not the path, which may be standard input or compressed.
    return (row.fields for row in run.files)


def _only_model(rows: list[JsonObject], path: Path) -> dict[str, str]:
    models = sorted({row["model"] for row in rows})
    if len(models) > 1:
        raise ValueError(f"{path} holds answers of {', '.join(models)}: name one with --meta-judge")
    return {row["key"]: row["answer"] for row in rows}


def headlines(score: ProtocolScore, run: str) -> list[str]:
    """Return the lines to quote of a score, see `_quotable`."""
    return [headline(score, run, figure) for figure in _quotable(score)]


def _quotable(score: ProtocolScore, *, full: bool = False) -> list[str]:
    """Return the names of the figures to quote: the first, but the win rate of each of several models."""
    rates = (WIN_RATE_OF, f"{LENGTH_CONTROLLED} of ")
    models = [figure for figure in score.estimates if figure.startswith(rates)]
    if full:
        return list(score.estimates)
    first = _first_known({name: one.value for name, one in score.estimates.items()})
    return models if len(models) > 1 else [first]


def headline(score: ProtocolScore, run: str = "", figure: str = "") -> str:
    """Return a figure of a score, by default the first, with its interval, protocol, n and the run."""
    figure = figure or _first_known({name: one.value for name, one in score.estimates.items()})
    estimate = score.estimates[figure]
    line = f"{figure} {_quoted(estimate, score.card)}, protocol {score.card.quoted}, n = {_n(estimate)}"
    line += in_clusters(cluster_count(score.units)) + _without_interval(estimate)
    line += _missing(score.card, score.units.counts["no verdict"])
    return printable(f"{line} ({run})" if run else line)


def who_won_lines(scores: Iterable[ProtocolScore]) -> list[str]:
    """Return the lines about the sources of the responses; none if no score has sources."""
    won = [found for one in scores if (found := WhoWon.of(one)) is not None]
    return [printable(f"{heading:<10}{text}") for one in won for heading, text in one.lines()]


def comparison_headline(comparison: Comparison, names: Sequence[str]) -> str:
    """Return the first difference of a comparison as a line to quote."""
    figure = _compared_first(comparison)
    estimate = comparison.differences[figure]
    first, second = (_number(one[figure], comparison.card) for one in (comparison.first, comparison.second))
    line = (
        f"{figure} {_quoted(estimate, comparison.card, signed=True)}, from {first} ({names[0]}) to {second} "
        f"({names[1]}), protocol {comparison.card.quoted}, n = {_n(estimate)}"
        f"{in_clusters(comparison.clusters)}{_without_interval(estimate)}"
    )
    line += _missing(comparison.card, *comparison.no_verdict)
    if comparison.p_value is not None:
        line += f", p = {comparison.p_value:.3g} ({comparison.test})"
        if comparison.p_holm is not None:
            line += f", {comparison.p_holm:.3g} by Holm for several runs"
        if comparison.disagrees:
            line += f"; {DISAGREEMENT}"
    return printable(line)


def _compared_first(comparison: Comparison) -> str:
    return _first_known({name: one.value for name, one in comparison.differences.items()})


def _missing(card: ProtocolCard, *counts: int) -> str:
    """Return how many missing verdicts a protocol counts as ties, in one run or in two; empty for none."""
    if not (card.missing_ties and any(counts)):
        return ""
    return f", {' and '.join(map(str, counts))} missing verdicts counted as ties"


def _first_known(values: Mapping[str, float]) -> str:
    """Return the name of the first number that is known, or else of the first one."""
    return next((name for name, value in values.items() if not math.isnan(value)), next(iter(values)))


def _without_interval(estimate: Estimate) -> str:
    return f" (no interval: {estimate.no_interval})" if estimate.no_interval else ""


def _quoted(estimate: Estimate, card: ProtocolCard, *, signed: bool = False) -> str:
    unit = (" points" if signed else " %") if card.percent else ""
    value = _number(estimate.value, card, signed=signed)
    if math.isnan(estimate.low):
        return f"{value}{unit}"
    low, high = (_number(bound, card, signed=signed) for bound in (estimate.low, estimate.high))
    return f"{value}{unit} [{low}, {high}]"


def print_score(score: ProtocolScore) -> None:
    """Print a table of the figures, with their definition and the counts of ties and failures below it."""
    card, terminal = score.card, console()
    rows = [
        (name, _number(one.value, card), _interval(one, card), _n(one))
        for name, one in score.estimates.items()
    ]
    terminal.print(figures_table(("", "value", "95 % interval", "n"), rows, title=card.name))
    _print_missing(terminal, score.estimates)
    if clusters := in_clusters(cluster_count(score.units)):
        terminal.print(f"rows{clusters}, which intervals take as units", markup=False)
    _print_policy(terminal, card, score.units.counts)


def print_comparison(comparison: Comparison, names: Sequence[str]) -> None:
    """Print a table of both runs' figures and their differences; `names` are the runs' names."""
    card, terminal = comparison.card, console()
    rows = [
        (
            name,
            _number(comparison.first[name], card),
            _number(comparison.second[name], card),
            _number(one.value, card, signed=True),
            _interval(one, card, signed=True),
            _n(one),
        )
        for name, one in comparison.differences.items()
    ]
    heads = ("", *names, "difference", "95 % interval", "n")
    terminal.print(figures_table(heads, rows, title=card.name))
    _print_missing(terminal, comparison.differences)
    figure = _compared_first(comparison)
    if not math.isnan(power := comparison.detectable.get(figure, math.nan)):
        points = " points" if card.percent else ""
        terminal.print(
            f"so many pairs show a true difference of {_number(power, card)}{points} in {figure} with a "
            "power of 80 %",
            markup=False,
        )
    if comparison.paired:
        clusters = in_clusters(comparison.clusters)
        terminal.print(f"{comparison.common} units{clusters} in both runs, compared in pairs", markup=False)
    else:
        terminal.print(
            "compared unpaired, as independent samples: a summary has no rows that could be paired",
            markup=False,
        )
    for name, only in zip(names, (comparison.only_first, comparison.only_second), strict=True):
        if only:
            named = ", ".join(only[:_NAMED]) + (", ..." if len(only) > _NAMED else "")
            terminal.print(printable(f"{len(only)} only in {name}: {named}"), markup=False)
    if comparison.p_value is not None:
        terminal.print(
            f"the second is better {comparison.gained} times, the first {comparison.lost} times: "
            f"p = {comparison.p_value:.3g} ({comparison.test})",
            markup=False,
        )
    _print_policy(terminal, card, {})


def _print_missing(terminal: Console, estimates: Mapping[str, Estimate]) -> None:
    reasons: dict[str, list[str]] = {}
    for name, one in estimates.items():
        if one.no_interval:
            reasons.setdefault(one.no_interval, []).append(name)
    for reason, names in reasons.items():
        terminal.print(printable(f"no interval of {', '.join(names)}: {reason}"), markup=False)


def print_protocols(cards: Sequence[ProtocolCard], *, as_json: bool = False) -> None:
    if as_json:
        print(json.dumps([card_record(card) | {"source": card.source} for card in cards], indent=2))
        return
    heads = ("protocol", "what is counted", "ties", "no verdict", "source")
    rows = [(card.name, card.about, card.ties, card.failures, card.source) for card in cards]
    console().print(figures_table(heads, rows, words=len(heads)))


def _print_policy(terminal: Console, card: ProtocolCard, counts: Mapping[str, int]) -> None:
    source = f" ({card.source})" if card.source else ""
    terminal.print(f"{card.about}{source}", markup=False)
    terminal.print(f"ties: {card.ties}; rows without a verdict: {card.failures}", markup=False)
    met = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    if met:
        terminal.print(f"met with: {printable(met)}", markup=False)
    terminal.print()


def _number(value: float, card: ProtocolCard, *, signed: bool = False) -> str:
    return printed_figure(value, is_share=card.percent, signed=signed)


def _n(estimate: Estimate) -> str:
    return "not stated" if estimate.n is None else str(estimate.n)


def _interval(estimate: Estimate, card: ProtocolCard, *, signed: bool = False) -> str:
    if math.isnan(estimate.low):
        return ""
    low, high = (_number(bound, card, signed=signed) for bound in (estimate.low, estimate.high))
    return f"{low} to {high}"


def print_comparable(score: ProtocolScore, found: Sequence[PublishedFigure]) -> None:
    """Print published figures, and the measured figure's difference from each."""
    if not found:
        return
    figure = found[0].figure
    measured = score.estimates[figure].value
    over = ", over the paper's benchmarks together" if found[0].benchmark == ANY else ""
    rows = [
        (
            *(one.paper, one.table, one.model, printed_figure(one.value, is_share=True)),
            f"{100 * (measured - one.value):+.2f}",
        )
        for one in found
    ]
    title = f"published under {score.card.name}: {figure}{over}"
    heads = ("paper", "table", "model", "value", "difference")
    console().print(figures_table(heads, rows, title=title, words=3))


def incomparable(lacking: str, benchmark: str) -> str:
    """Return why no published figures are shown; `lacking` says how the rows differ from the benchmark's."""
    return f"{lacking}: not comparable with the figures published on {benchmark}"


def print_others(benchmark: str, shown: Sequence[str]) -> None:
    """Print one line for each other protocol under which papers print figures on the benchmark."""
    others: dict[str, set[str]] = {}
    for one in published(benchmark) if benchmark else ():
        if one.protocol not in shown:
            others.setdefault(one.protocol, set()).add(one.paper)
    for protocol, papers in others.items():
        line = f"under {protocol}, not comparable with the above: {', '.join(sorted(papers))}"
        console().print(line, markup=False)
    if others:
        console().print(f"tirjudge score --published {benchmark} prints all figures", markup=False)


def print_published(benchmark: str, *, as_json: bool = False) -> None:
    """Print all published figures of a benchmark; raises ValueError for one without any."""
    found = published(benchmark)
    if not found:
        known = sorted({one.benchmark for one in published()} - {"unknown"})
        raise ValueError(f"no published figures on {benchmark!r}; there are figures on {', '.join(known)}")
    if as_json:
        print(json.dumps([published_record(one) | {"protocol": one.protocol} for one in found], indent=2))
        return
    rows = []
    for one in found:
        protocol = f"{one.protocol} ({one.because})" if one.because else one.protocol
        is_share = one.unit == "share"
        value = printed_figure(one.value, is_share=True) if is_share else f"{one.value:g} {one.unit}"
        rows.append((one.paper, one.table, one.model, one.figure, protocol, value))
    heads = ("paper", "table", "model", "figure", "protocol", "value")
    console().print(figures_table(heads, rows, words=5))


def print_scored(command: str, run: Replay, output: ScoreOutput, *, seed: int) -> bool:
    """Score a run under each protocol and print a line to quote for each, everything, a table or JSON.

    Protocols that were not named are printed only if they fit. Returns True if every named one fits.
    Raises ValueError, in one line, for an unknown name, for unreadable rows, and when no protocol fits.
    """
    named, full, table = output.protocol or (), output.full, output.table
    results, unfit = score_run(run, named or default_protocols(run), run.benchmark, seed=seed)
    _say_unfit(command, unfit, named=bool(named), found=[one.score.card for one in results])
    for names in unlike_sections(results[0].score.units.sections):
        named_alike = ", ".join(repr(name) for name in names)
        say(f"tirjudge {command}: sections that differ only in case or spaces: {printable(named_alike)}")
    if run.dropped:
        dropped = counted(run.dropped, "row")
        say(f"tirjudge {command}: not counted: {dropped} with an id that occurred before")
    if run.unlabelled:
        rows = "1 row has" if run.unlabelled == 1 else f"{run.unlabelled} rows have"
        say(f"tirjudge {command}: {rows} no label in the file of --labels, and no part in the accuracy")
    evidence = run.evidence
    if table:
        for fault in {one.fault for one in results if one.fault}:
            say(f"tirjudge {command}: {incomparable(fault, run.benchmark)}")
        if table == "latex" and not full and print_judges([run], named, seed=seed):
            return not (named and unfit)
        figures = score_rows(results, run.name, lambda one: _quotable(one.score, full=full))
        print_table(figures + evidence_rows(evidence, run.name), table)
        return not (named and unfit)
    if output.as_json:
        known = {"evidence": evidence.record()} if evidence.known else {}
        print(json.dumps([_record(one) | known for one in results], indent=2))
    else:
        print("\n".join(line for one in results for line in headlines(one.score, run.name)))
        told = (f"{heading:<10}{printable(line)}" for heading, line in evidence.entries())
        for line in (*told, *who_won_lines([one.score for one in results]), *decided_lines(run)):
            print(line)
        if full:
            _print_in_full(results, run.benchmark)
            if (jury := jury_agreement(run)) is not None:
                print_agreement(jury[1], jury[0])
        # Named protocols are for lines to quote, of which this is none. `compare` takes the same files.
        own = run.format is TIRJUDGE_RESULTS and len(run.files.paths) == 1 and not run.has_options
        if own and not named and str(run.path) != STANDARD_INPUT:
            print(f"next      tirjudge compare {shlex.quote(printable(str(run.path)))} OTHER")
    return not (named and unfit)


def decided_lines(run: Replay) -> Iterator[str]:
    """Yield who won among the rows that programs decided, as the summary of a run does."""
    won = who_won_decided(run, run.evidence)
    yield from (printable(f"decided   {line}") for line in (won.wins() if won else ()))


def print_compared(
    runs: Sequence[Replay], output: ScoreOutput, *, seed: int, fail_if_worse: bool = False
) -> bool:
    """Compare the first run with every other one under each protocol, otherwise like `print_scored`.

    With `fail_if_worse`, returns False as well if another run is significantly worse than the first. Raises
    ValueError if nothing that is better when it is higher can be compared.
    """
    fits, results = _print_compared(runs, output, seed=seed)
    if not fail_if_worse:
        return fits
    # Costs and errors are no better when they are higher, and one source wins what another loses.
    of_sources = (WIN_RATE_OF, f"{LENGTH_CONTROLLED} of ")
    gated = [
        (one, pair)
        for one, pair in results
        if one.card.name not in ("cost", "errors") and not _compared_first(one).startswith(of_sources)
    ]
    if len({pair for _, pair in gated}) < len(runs) - 1:
        raise ValueError(
            "--fail-if-worse compares accuracies, agreements and scores: give labels or --protocol"
        )
    if not output.protocol:
        # The first figure of each run is that which is quoted.
        gated = list({pair: (one, pair) for one, pair in reversed(gated)}.values())
    lost = [(one, pair) for one, pair in gated if one.is_loss(_compared_first(one))]
    for one, pair in lost:
        say(f"tirjudge compare: {printable(pair[1])} is worse: {comparison_headline(one, pair)}")
    return fits and not lost


def _print_compared(
    runs: Sequence[Replay], output: ScoreOutput, *, seed: int
) -> tuple[bool, list[tuple[Comparison, tuple[str, str]]]]:
    """Print the comparisons; return them with the names of their runs, and whether all named ones fit."""
    named, full, table = output.protocol or (), output.full, output.table
    agreement = judges_agreement(runs) if full and table != "csv" else None
    found, faults = [], []
    for other in runs[1:]:

        def measure(protocol: ScoringProtocol, other: Replay = other) -> Comparison:
            return compare(protocol, *paired_units(protocol, runs[0], other), seed=seed)

        compared, unfit = fitting(named or default_protocols(runs[0]), measure)
        if compared or named or agreement is None:
            _say_unfit("compare", unfit, named=bool(named), found=[one.card for one in compared])
        found.append(compared)
        faults += unfit
    fits, names = not (named and faults), [run.name for run in runs]
    pairs = [(names[0], other) for other in names[1:]]
    results = [(one, pair) for some, pair in zip(with_holm(found), pairs, strict=True) for one in some]
    if table:
        if table == "latex" and not full and print_judges(runs, named, seed=seed):
            return fits, results
        rows = comparison_rows(results, lambda one: list(one.differences) if full else [_compared_first(one)])
        print_table(rows, table)
        if agreement is not None:
            print()
            print_table(agreement_rows(agreement, names), table)
        return fits, results
    if output.as_json:
        together = {} if agreement is None else {"agreement": agreement_record(agreement, names)}
        known = {run.name: tally.record() for run in runs if (tally := run.evidence).known}
        together |= {"evidence": known} if known else {}
        records = [comparison_record(one) | {"runs": pair} | together for one, pair in results]
        print(json.dumps(records or [together], indent=2))
        return fits, results
    if not results:
        say(f"tirjudge compare: only the agreement of the judges can be measured: {'; '.join(faults)}")
    for one, pair in results:
        print(comparison_headline(one, pair))
    for run in runs:
        for _, line in run.evidence.entries():
            print(printable(f"{run.name}: {line}"))
    for one, pair in results if full else ():
        print()
        print_comparison(one, pair)
    if agreement is not None:
        print_agreement(agreement, names)
    return fits, results


def agreement_record(agreement: JudgesAgreement, names: Sequence[str]) -> JsonObject:
    """Return the agreement of judges with these names as JSON."""
    return {
        "alpha": estimate_record(agreement.alpha),
        "pairs": [
            {
                "runs": [names[one], names[other]],
                "agreement": estimate_record(equal),
                "kappa": estimate_record(kappa),
            }
            for one, other, equal, kappa in agreement.pairs
        ],
        "clusters": agreement.clusters,
    }


def print_agreement(agreement: JudgesAgreement, names: Sequence[str]) -> None:
    """Print the agreement of every two judges, and of all."""
    heads = ("", "equal verdicts, %", "95 % interval", "kappa", "95 % interval", "n")
    rows = [
        (
            f"{names[one]}, {names[other]}",
            *(_number(equal.value, THREE_CLASS.card), _interval(equal, THREE_CLASS.card)),
            *(_number(kappa.value, KAPPA.card), _interval(kappa, KAPPA.card), _n(equal)),
        )
        for one, other, equal, kappa in agreement.pairs
    ]
    console().print(figures_table(heads, rows, title="agreement of the judges, all orders combined"))
    line = f"Krippendorff's alpha of {len(names)} judges {_quoted(agreement.alpha, KAPPA.card)}"
    line += f", n = {_n(agreement.alpha)}"
    line += in_clusters(agreement.clusters) + _without_interval(agreement.alpha)
    console().print(printable(line), markup=False)


def _record(one: ScoredRun) -> JsonObject:
    not_comparable = {"not_comparable": one.fault} if one.fault else {}
    published = [] if one.fault else [published_record(figure) for figure in one.published]
    return score_record(one.score) | not_comparable | {"published": published}


def _print_in_full(results: Sequence[ScoredRun], benchmark: str) -> None:
    """Print every figure of a run next to published ones, unless its rows make them incomparable."""
    for one in results:
        print()
        print_score(one.score)
        if one.fault:
            console().print(printable(incomparable(one.fault, benchmark)), markup=False)
        else:
            print_comparable(one.score, one.published)
    print_others(benchmark, [one.score.card.name for one in results])


def _say_unfit(command: str, unfit: Sequence[str], *, named: bool, found: Sequence[ProtocolCard]) -> None:
    if not found:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    # Its absence is no property of the rows that a reader sees, as a missing label is.
    for reason in unfit if named else [one for one in unfit if one.startswith("length-controlled")]:
        say(f"tirjudge {command}: {reason}")
    won = any(card.name in (WIN_RATE.card.name, RATINGS_PROTOCOL.card.name) for card in found)
    if not (named or won) and any("left out: no label" in reason for reason in unfit):
        say(f"tirjudge {command}: accuracy needs labels, and no row has one (--labels FILE adds them)")
