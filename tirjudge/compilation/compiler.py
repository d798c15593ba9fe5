"""The compiler: rows with rules become a file of checkers, each admitted or rejected with its reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import tomlkit
from tomlkit.items import Comment, Whitespace

from tirjudge.compilation.admission import MIN_AGREEMENT, matched, measured, outcomes
from tirjudge.compilation.authors import Author
from tirjudge.compilation.candidates import Candidate, recorded_candidates
from tirjudge.compilation.examples import Examples, RuledRow, is_for_choosing
from tirjudge.data.rows import BadRow, Row
from tirjudge.judging.questions import read_question, truncated
from tirjudge.judging.rereading import row_task
from tirjudge.records.result_row import read_result_row
from tirjudge.rollout import all_or_none
from tirjudge.statistics.printed import estimated
from tirjudge_environments import Criterion
from tirjudge_environments.checkers.file import Checker, CheckerFile, Measurement
from tirjudge_environments.checkers.runner import Case, CheckerRunner
from tirjudge_environments.messages import conversation_data, conversation_text
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError

_MOST_SOURCES = 12
"""Candidates of one pattern that are tried, the most frequent ones first."""
_ROUNDS = 2
"""Further rounds, in which rows with several rules measure a rule whose other rules come out equal."""
_MOST_PATTERNS = 1_000
_SHOWN, _LONGEST_LINE = 20, 300
"""Lines about rejected checkers and about rules without one, and characters of a line."""


@dataclass(slots=True)
class Compilation:
    """The outcome of `compile_rows`."""

    file: CheckerFile
    rules: int = 0
    """Rules of all rows, repetitions included."""
    candidates: int = 0
    """Different candidates."""
    prompts: int = 0
    chosen_on: int = 0
    """Prompts on which candidates were sought and chosen; the others measure."""
    unwritten: int = 0
    """Rules for which the model wrote no checker."""
    without: list[str] = field(default_factory=list)
    """Different rules of the rows that no checker has, admitted or not."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Rows whose rules the model listed from their prompts, with these as `criteria`."""

    def lines(self) -> list[tuple[str, str]]:
        """Return what was compiled, as lines with headings."""
        admitted = self.file.admitted
        checkers = [(one, one.measured) for one in self.file.checkers if not one.is_admitted]
        rejected = [f"{one.name}: {found.reason}" for one, found in checkers if found]
        sought = f"on {self.chosen_on} of {self.prompts} prompts; the other prompts measure"
        lines = [
            ("rules", f"{self.rules} in the rows"),
            ("sought", f"{self.candidates} candidates {sought if self.prompts else 'in the file'}"),
            ("admitted", f"{len(admitted)} of {len(self.file.checkers)} checkers"),
            *_first("rejected", rejected),
            *_first("unchecked", [f"no candidate: {rule}" for rule in self.without]),
        ]
        if self.unwritten:
            lines.append(("unwritten", f"{self.unwritten} rules, for which the model wrote no checker"))
        for one in admitted:
            if (found := one.measured) is not None:
                agreement = estimated(found.agreement or 0.0, found.low or 0.0, found.high or 0.0)
                rows = f"n = {found.n} rows of {found.prompts} prompts, {found.abstained} abstained"
                lines.append(("checker", f"{one.name}: {agreement} with {found.against}, {rows}"))
        return lines


def _first(heading: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    shown = [(heading, line[:_LONGEST_LINE]) for line in lines[:_SHOWN]]
    return [*shown, (heading, f"{len(lines) - _SHOWN} more")] if len(lines) > _SHOWN else shown


def ruled_row(
    row: Row | BadRow,
    columns: Columns = DEFAULT_COLUMNS,
    labels: Mapping[str, str] | None = None,
    rules: Sequence[str] = (),
) -> RuledRow:
    """Return a row, or a row of a result file, with its rules: its criteria, or else `rules`.

    Raises RowError for a row that is none.
    """
    if isinstance(row, BadRow):
        raise RowError(row.reason)
    given = tuple(Criterion(text=rule) for rule in rules)
    if "views" in row.fields and "stop" in row.fields:
        try:
            record = read_result_row(row.fields, row.where)
        except ValueError as error:
            raise RowError(str(error)) from None
        if record.prompt is None or record.responses is None:
            raise RowError("the result file has no texts: judge without --no-texts")
        task = row_task(record)
        return RuledRow(task, task.criteria or given, record)
    asked = read_question(row.fields, columns, labels, default_id=row.default_id)
    task = truncated(asked, None, thinking=False)
    return RuledRow(task, task.criteria or given)


async def compile_rows(
    rows: Sequence[RuledRow],
    runner: CheckerRunner,
    *,
    author: Author | None = None,
    min_agreement: float = MIN_AGREEMENT,
    seed: int = 0,
) -> Compilation:
    """Compile the rules of rows into checkers; runs candidates in the runner's sandbox.

    Candidates come from the recorded programs of rows of result files and from an `author`, which also lists
    the rules of rows without any. They are chosen on one third of the prompts and measured on the others.
    Raises GeneratorFailed if the model fails, and CheckersDown if the sandbox does.
    """
    found = Compilation(CheckerFile())
    if author is not None:
        rows = await _with_listed(rows, author, found)
    found.rules = sum(len(row.criteria) for row in rows)
    clusters = {row.cluster for row in rows if row.criteria}
    found.prompts = len(clusters)
    found.chosen_on = sum(is_for_choosing(one, seed) for one in clusters)
    examples = Examples.of(rows, seed)
    candidates = Counter(recorded_candidates(rows, seed))
    if author is not None:
        candidates.update(await _written(rows, author, seed, found))
    found.candidates = len(candidates)
    checkers = await _chosen(_by_pattern(candidates), runner, examples)
    await _admit(checkers, rows, runner, min_agreement, seed, found)
    return found


async def measure_rows(
    file: CheckerFile,
    rows: Sequence[RuledRow],
    runner: CheckerRunner,
    *,
    min_agreement: float = MIN_AGREEMENT,
    seed: int = 0,
) -> Compilation:
    """Measure the checkers of a file again, on the rows that `compile_rows` would measure on."""
    found = Compilation(file, rules=sum(len(row.criteria) for row in rows), candidates=len(file.checkers))
    bare = [one.model_copy(update={"measured": None}) for one in file.checkers]
    await _admit(bare, rows, runner, min_agreement, seed, found)
    return found


def measured_text(text: str, file: CheckerFile) -> str:
    """Return the text of a file of checkers with the rules and measurements of `file`, else as it was."""
    document = tomlkit.parse(text)
    if [*document.get("rules", ())] != [*file.rules]:
        document["rules"] = [*file.rules]
    for table, one in zip(document.get("checkers", ()), file.checkers, strict=True):
        old = table.pop("measured", None)
        body, after = (table if old is None else old).value.body, list[Any]()
        # Comments at the end of a table are about what follows, and those in the old measurement are kept.
        while body and (old is not None or isinstance(body[-1][1], Comment | Whitespace)):
            key, item = body.pop()
            after += [] if key else [item]
        table["measured"] = one.measured.model_dump(exclude_defaults=True) if one.measured else {}
        for item in reversed(after):
            table["measured"].add(item)
    return tomlkit.dumps(document)


def _by_pattern(candidates: Counter[Candidate]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for one, _ in candidates.most_common():
        several = found.setdefault(one.rule, [])
        if len(several) < _MOST_SOURCES:
            several.append(one)
    return dict(list(found.items())[:_MOST_PATTERNS])


async def _chosen(
    patterns: Mapping[str, Sequence[Candidate]], runner: CheckerRunner, examples: Examples
) -> list[Checker]:
    """Return the best candidate of each pattern by the examples for choosing."""
    names = set[str]()
    chosen = []
    for rule, several in patterns.items():
        checkers = [
            Checker(name=_name(rule, names), rule=rule, source=one.source, author=one.author)
            for one in several
        ]
        scores = await all_or_none(_score(runner, one, examples) for one in checkers)
        place = max(range(len(checkers)), key=lambda place: (*scores[place], -len(checkers[place].source)))
        chosen.append(checkers[place])
        names.add(checkers[place].name)
    return chosen


async def _score(runner: CheckerRunner, checker: Checker, examples: Examples) -> tuple[float, int]:
    """Return the share of the examples for choosing on which a checker agrees, and their number."""
    several = matched(checker, examples.chosen_on)
    found = await outcomes(runner, checker, several)
    agrees = [one.example.agrees(outcome) for one, outcome in zip(several, found, strict=True)]
    return sum(one is True for one in agrees) / max(1, len(agrees)), len(agrees)


def _name(rule: str, taken: set[str]) -> str:
    """Return a name from the words of a rule that no other checker has."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\{[a-z0-9_:]*\}", " ", rule.lower()))
    stem = "-".join(words)[:50].strip("-") or "rule"
    numbered = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(name for name in numbered if name not in taken)


async def _admit(
    checkers: Sequence[Checker],
    rows: Sequence[RuledRow],
    runner: CheckerRunner,
    min_agreement: float,
    seed: int,
    found: Compilation,
) -> None:
    """Measure checkers. Admitted checkers tell which further rows can measure the others."""
    several, examples, counts = list(checkers), Examples.of(rows, seed), dict[str, int]()
    admitted_before: list[str] | None = None
    for number in range(1 + _ROUNDS):
        if number:
            if (names := [one.name for one in found.file.admitted]) == admitted_before:
                break  # the same checkers tell of the same rows as before
            admitted_before = names
            examples = Examples.of(rows, seed, await _equal_others(found.file, rows, runner))
        for place, one in enumerate(several):
            known = matched(one, examples.measured_on)
            if one.is_admitted or counts.get(one.name) == len(known):
                continue
            counts[one.name] = len(known)
            text, admitted = one.exact_rule, (other for other in several if other.is_admitted)
            if text and (same := [other.name for other in admitted if other.exact_rule == text]):
                reason = f"the checker {same[0]} has the same rule"
                measurement = Measurement(digest=one.digest, admitted=False, reason=reason)
            else:
                measurement = await measured(runner, one, known, min_agreement)
            several[place] = one.model_copy(update={"measured": measurement})
        found.file = CheckerFile(checkers=tuple(several))
    rules = dict.fromkeys(one.text.strip() for row in rows for one in row.criteria)
    found.without = [rule for rule in rules if all(one.pattern.values(rule) is None for one in several)]


async def _equal_others(
    file: CheckerFile, rows: Sequence[RuledRow], runner: CheckerRunner
) -> dict[tuple[int, int], bool]:
    """Return the rules of labelled rows whose other rules come out equal, by the numbers of row and rule.

    Another rule is known by an admitted checker, or by the judge's recorded verdict.
    """
    found: dict[tuple[int, int], bool] = {}
    for place, row in enumerate(rows):
        texts = row.texts
        if len(row.criteria) < 2 or not row.has_label or texts is None or len(texts) < 2:
            continue
        equal = [await _is_equal(file, row, number, runner) for number in range(len(row.criteria))]
        for number in range(len(equal)):
            found[place, number] = all(equal[:number] + equal[number + 1 :])
    return found


async def _is_equal(file: CheckerFile, row: RuledRow, number: int, runner: CheckerRunner) -> bool:
    match = file.match(row.criteria[number].text)
    if match is None:
        judged = row.record.criteria if row.record is not None else []
        # A guess about this rule lets no label of the row speak about another one.
        known = number < len(judged) and judged[number].decided is not False
        shares = judged[number].satisfied if known else [None]
        return None not in shares and len(set(shares)) == 1
    prompt = conversation_data(row.task.prompt)
    cases = [Case(text, prompt, match.values) for text in row.texts or ()]
    passed = {one.passed for one in await runner.run(match.checker, cases)}
    return None not in passed and len(passed) == 1


async def _with_listed(rows: Sequence[RuledRow], author: Author, found: Compilation) -> list[RuledRow]:
    """Return the rows; those without rules have the rules that the model lists from their prompts."""
    prompts = {row.cluster: conversation_text(row.task.prompt) for row in rows if not row.criteria}
    listed = dict(zip(prompts, await all_or_none(map(author.rules, prompts.values())), strict=True))
    ruled = []
    for row in rows:
        if not row.criteria and (rules := listed[row.cluster]):
            row = replace(row, criteria=tuple(Criterion(text=rule) for rule in rules))
            found.rows.append({"id": row.task.id, "criteria": rules})
        ruled.append(row)
    return ruled


async def _written(
    rows: Sequence[RuledRow], author: Author, seed: int, found: Compilation
) -> list[Candidate]:
    """Return the model's candidates for the rules of rows for choosing, one for each pattern."""
    rules = dict.fromkeys(
        one.text for row in rows if is_for_choosing(row.cluster, seed) for one in row.criteria
    )
    written = list[Candidate]()
    # One after the other: a pattern that is known covers many of the rules that follow.
    for rule in rules:
        patterns = [Checker(name="x", rule=one.rule, source=one.source).pattern for one in written]
        if any(pattern.values(rule) is not None for pattern in patterns):
            continue
        candidate = await author.candidate(rule)
        if candidate is None:
            found.unwritten += 1
        else:
            written.append(candidate)
    return written
