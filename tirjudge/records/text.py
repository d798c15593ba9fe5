"""Rows of a result file for people: captions of verdicts, programs and rewards, and rows on the terminal.

Captions escape untrusted names; the texts of rows, models and programs are left to whoever shows them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tirjudge.console_text import printable, printable_text
from tirjudge.records.result_row import Dialogue, RecordedPassage, RecordedView, ResultRow, model_of
from tirjudge.records.verdicts import JudgedCriterion, JurorVerdict
from tirjudge_environments import Response
from tirjudge_environments.files.folder import NO_FILES, shown_path
from tirjudge_environments.files.listing import ListedFile, folder_heading, listed_files
from tirjudge_environments.messages import is_transcript, response_text, transcript_parts
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.programs.check_harness import fault_of

_LONGEST_LINE = 160
_SHORT_OUTPUT = 44
"""Characters of output in a line that has the check too."""
_NARROWEST = 36
"""Columns that a response needs to be shown next to another one."""
_LETTERED = re.compile(r"(?:[Rr]esponse[ _])?([A-Z])\b\W?\s*(.*)")
"""A line of output about the response of a letter."""
_FINISHED = ("ok", "error")
"""Statuses of a program that ended by itself."""
_DIFF = {"+": "green", "-": "red", "@": "cyan"}
"""Styles of the lines of a difference, by their first character."""
_STYLES = {"right": "green", "wrong": "red"}
_EVIDENCE = {
    "missing": "no program was run",
    "failed": "every program failed",
    "unchecked": "the program was not run again on other responses",
    "tie": "the program does not tell the responses apart: its output is the same for other responses",
    "separates": "the program tells the responses apart: its output changes with other responses",
    "tool": "the answer of a tool",
}
"""The values of `Evidence` in words."""


def outcome_text(row: ResultRow) -> str:
    """Return right, wrong, the credit of a tie, a rating, or nothing for a row without a label."""
    if row.correct is None:
        return "" if row.rating is None or isinstance(row.rating, bool) else f"rated {row.rating:g}"
    return {1.0: "right", 0.0: "wrong"}.get(row.correct, f"{row.correct:.2g}")


def rating_text(rating: bool | float) -> str:
    """Return people's judgement of a single response: `pass`, `fail` or the number."""
    return ("pass" if rating else "fail") if isinstance(rating, bool) else f"{rating:g}"


def verdict_text(row: ResultRow) -> str:
    """Return the verdict with the scores, or with the share of the views that agree."""
    if row.verdict is None and not row.scores:
        return row.stop
    parts = [row.named_verdict] if row.verdict else []
    if row.scores:
        parts.append(":".join("-" if score is None else f"{score:.3g}" for score in row.scores))
    elif len(row.views) > 1:
        chosen = [view.verdict.choice for view in row.views if view.verdict is not None]
        agreeing = sum(choice is not None and letter(choice) == row.verdict for choice in chosen)
        parts.append("" if row.verdict == "tie" else f"{agreeing}/{len(row.views)}")
    return " ".join(parts).rstrip()


def decided_text(row: ResultRow, apart: Collection[str] = ()) -> str:
    """Return whether programs decided the verdict of a row; empty if that is not known.

    `apart` has the ids of the rows that a summary counts apart, see `EvidenceTally`.
    """
    if row.verdict_decided is None:
        return ""
    if row.verdict_decided and row.programs:
        copied = row.id in apart
        return "decided by a copied program, which counts apart" if copied else "decided by a program"
    if row.verdict_decided:
        return "decided by the rule about empty answers"
    if row.guess:
        return f"a tie, since no program decided it; the judge's guess was {printable(row.guess)}"
    return "undecided: a guess of the judge, since no program decided it"


def deciding_lines(row: ResultRow) -> tuple[str, str]:
    """Return the last program's output that tells the responses apart, and the line of code behind it.

    Lines that begin with a letter have the letters of the row. Both texts are empty without a program.
    """
    found = _last_program(row)
    if found is None:
        return "", ""
    order, program = found
    code = [line.strip() for line in program.text.splitlines() if line.strip()]
    checks = [line.removeprefix("return ") for line in code if line.startswith("return ")]
    check = printable((checks or code or [""])[-1], _LONGEST_LINE)
    if program.status != "ok":
        last = ((program.stderr or program.reason).strip().splitlines() or [""])[-1]
        return printable(f"{program.status}: {last}", _LONGEST_LINE), check
    lines = [line.strip() for line in program.stdout.splitlines() if line.strip()]
    said: dict[str, list[str]] = {}
    meant = dict(zip(letters(len(order)), map(letter, order), strict=True))
    for match in filter(None, map(_LETTERED.fullmatch, lines)):
        if match[1] in meant and match[2]:
            said.setdefault(meant[match[1]], []).append(match[2])
    if len(said) > 1:
        names = sorted(said)
        columns = [*zip_longest(*(said[name] for name in names), fillvalue="")]
        apart = [column for column in columns if len(set(column)) > 1]
        parts = zip(*(apart or columns[:1]), strict=True)
        shown = " · ".join(
            f"{name} {', '.join(filter(None, part))}" for name, part in zip(names, parts, strict=True)
        )
        return printable(shown if apart else f"{shown} (alike)", _LONGEST_LINE), check
    shown = " · ".join(lines[:2]) or "(no output)"
    return printable(f"{shown}{_letters_note(order)}", _LONGEST_LINE), check


def _last_program(row: ResultRow) -> tuple[Sequence[int], RecordedPassage] | None:
    """Return the last program and the order that its view showed; a view in the row's order is preferred."""
    passages = [(view.order, one) for view in row.views for one in view.segments]
    found = [(order, one) for order, one in passages if one.kind == "program" and not one.tool]
    if not found:
        return None
    return next((pair for pair in reversed(found) if _is_given(pair[0])), found[-1])


def _letters_note(order: Sequence[int]) -> str:
    """Return what the letters of a program stand for; empty for the letters of the row."""
    shown, meant = letters(len(order)), map(letter, order)
    return "" if _is_given(order) else f" (its {','.join(shown)}: {','.join(meant)})"


def _is_given(order: Sequence[int]) -> bool:
    """Return True if a view's letters are those of the row."""
    return list(order) == list(range(len(order)))


def checker_of(view: Dialogue, criteria: Sequence[JudgedCriterion]) -> str:
    """Return the name of the checker that decided in place of a dialogue; empty for a dialogue."""
    number = view.criterion
    return criteria[number].checker if number is not None and number < len(criteria) else ""


def order_note(order: Sequence[int]) -> str:
    """Return what the letters in a dialogue stand for, given the candidate at each shown position."""
    if len(order) == 1:
        return f"the judge sees only response {letter(order[0])}"
    if _is_given(order):
        return "the judge sees the responses in the order of the row"
    places = [f"its {letter(place)} is response {letter(index)}" for place, index in enumerate(order)]
    return f"the judge sees the responses in another order: {', '.join(places)}"


def response_heading(row: ResultRow, index: int) -> str:
    """Return the letter of a response, its source, and whether the judge chose it and the label names it."""
    name = letter(index)
    notes = [printable(row.sources[index])] if index < len(row.sources) else []
    notes += ["chosen"] * (row.verdict == name) + ["label"] * (row.label == index)
    return f"response {name}" + (f" ({', '.join(notes)})" if notes else "") + ":"


def view_verdict(view: RecordedView) -> str:
    """Return the verdict of a dialogue in the letters of the row, and in its own."""
    verdict = view.verdict
    if verdict is None:
        return f"no verdict: {printable(view.stop)}" + (f" ({printable(view.detail)})" if view.detail else "")
    if verdict.tie:
        return "verdict: a tie"
    scores = ", ".join(f"{printable(_name(index))} {score:g}" for index, score in verdict.scores.items())
    if verdict.choice is None:
        return f"scores: {scores}"
    named = f"verdict: response {letter(verdict.choice)}"
    if verdict.choice in view.order and not _is_given(view.order):
        named += f", which this dialogue calls {letter(view.order.index(verdict.choice))}"
    return f"{named}; scores: {scores}" if scores else named


def _name(index: str) -> str:
    return letter(int(index)) if index.isdecimal() and len(index) < 10 else index


def evidence_text(view: RecordedView) -> str:
    """Return what the programs of a dialogue show about the responses."""
    about = _EVIDENCE.get(view.evidence, printable(view.evidence))
    return f"evidence: {about}"


def reward_text(view: RecordedView) -> str:
    """Return the reward of a dialogue with its parts."""
    reward = view.reward
    if reward is None or reward.total is None:
        return f"no reward: {printable(reward.unscored if reward else '')}"
    parts = ", ".join(
        f"{printable(name)} {'-' if part is None else f'{part:g}'}" for name, part in reward.parts.items()
    )
    return f"reward {reward.total:g}" + (f" ({parts})" if parts else "")


def view_name(view: Dialogue, jury: Sequence[JurorVerdict] = ()) -> str:
    """Return the name of a dialogue: its model, criterion and sample, if there are several, and its view."""
    sample = f", sample {view.sample}" if view.sample else ""
    criterion = "" if view.criterion is None else f"criterion {view.criterion + 1}, "
    model = printable(model_of(view, jury))
    return f"{model}{', ' if model else ''}{criterion}view {printable(view.view)}{sample}"


def view_heading(
    view: Dialogue, jury: Sequence[JurorVerdict] = (), criteria: Sequence[JudgedCriterion] = ()
) -> str:
    """Return the name of a dialogue and what its letters stand for, or which checker decided."""
    if checker := checker_of(view, criteria):
        return f"{view_name(view)}: checker {printable(checker)}, without the model"
    return f"{view_name(view, jury)}: {order_note(view.order)}"


def headed_views(row: ResultRow) -> Iterator[tuple[str, RecordedView]]:
    """Yield all dialogues under their headings, those of earlier models first."""
    for model, views in row.earlier.items():
        for view in views:
            heading = view_heading(view, (), row.criteria)
            yield f"{printable(model)}, which was not sure enough, {heading}", view
    for view in row.views:
        yield view_heading(view, row.jury, row.criteria), view


def jury_text(row: ResultRow) -> str:
    """Return the verdict of each model of a jury, in the order in which they were asked."""
    parts = []
    for one in row.jury:
        scores = ":".join("-" if score is None else f"{score:.3g}" for score in one.scores or ())
        notes = [f"weight {one.weight:g}"] if one.weight != 1 else []
        notes += [f"confidence {one.confidence:.3g}"] if one.confidence is not None else []
        notes += [f"guess {one.guess}"] if one.guess else []
        notes += ["undecided"] if one.decided is False and one.stop == "verdict" and not one.guess else []
        named = " ".join(filter(None, (one.verdict, scores))) or one.stop
        parts.append(printable(f"{one.model} {named}" + (f" ({', '.join(notes)})" if notes else "")))
    return " · ".join(parts)


def criterion_heading(number: int, criterion: JudgedCriterion) -> str:
    """Return the number of a criterion, counted from 1, and its weight and kind where they are not usual."""
    notes = [f"weight {criterion.weight:g}"] if criterion.weight != 1 else []
    notes += ["negative"] if criterion.polarity == "negative" else []
    notes += ["must-have"] if criterion.must_have else []
    return f"criterion {number}" + (f" ({', '.join(notes)})" if notes else "")


def criterion_text(criterion: JudgedCriterion) -> str:
    """Return which responses satisfy a criterion, with their scores, and why one has no verdict."""
    found = [
        f"{letter(index)} {_share(share)}{_scored(criterion, index)}"
        for index, share in enumerate(criterion.satisfied)
    ]
    if criterion.checker:
        found.append(f"by checker {printable(criterion.checker)}")
    if criterion.stop != "verdict":
        reason = f"{criterion.stop}: {criterion.detail}" if criterion.detail else criterion.stop
        found.append(f"no verdict: {printable(reason)}")
    elif criterion.decided is False:
        found.append("undecided")
    return ", ".join(found)


def audit_lines(row: ResultRow, number: int) -> Iterator[str]:
    """Yield what the model said about a criterion that a checker decided, for an audited row."""
    for one in row.audit:
        if one.criterion == number:
            said = ", ".join(f"{letter(index)} {_share(share)}" for index, share in enumerate(one.satisfied))
            outcome = {True: "agrees", False: "disagrees", None: "cannot be compared"}[one.agrees]
            reason = f" ({printable(one.stop)}: {printable(one.detail)})" if one.stop != "verdict" else ""
            yield f"audit: the model {outcome}: {said}{reason}"


def _share(share: float | None) -> str:
    if share is None:
        return "unknown"
    return {1.0: "satisfied", 0.0: "not satisfied"}.get(share, f"{share:.2g} satisfied")


def _scored(criterion: JudgedCriterion, index: int) -> str:
    scores = criterion.scores or ()
    score = scores[index] if index < len(scores) else None
    return "" if score is None else f" ({score:g})"


_HEADINGS = {"output": "shown to the judge", "question": "asked for the verdict alone"}


def view_passages(view: RecordedView) -> Iterator[tuple[RecordedPassage, str, str]]:
    """Yield the passages of a dialogue, each with a heading and the output shown to the judge.

    The last part is empty for everything but programs.
    """
    outputs = [passage.text for passage in view.segments if passage.kind == "output"]
    number = 0
    for passage in view.segments:
        if passage.kind == "program":
            number += 1
            yield passage, program_heading(passage, number), "".join(outputs[number - 1 : number])
        else:
            heading = _HEADINGS.get(passage.kind, passage.kind)
            yield passage, f"{'hidden ' * passage.hidden}{heading}", ""


def program_heading(program: RecordedPassage, number: int) -> str:
    what = f"call {number} of {printable(program.tool)}" if program.tool else f"program {number}"
    heading = f"{what}: {printable(program_end(program))}"
    return f"{heading}, exit code {program.exit_code}" if program.exit_code else heading


def program_end(program: RecordedPassage) -> str:
    """Return the status of a program, or `error` for a check with an error in place of its counts."""
    is_faulty = program.is_check and program.status == "ok" and fault_of(program.stdout)
    return "error" if is_faulty else program.status


def variable_notes(program: RecordedPassage) -> Iterator[str]:
    """Yield which response each variable of a program holds."""
    for name, reference in (program.bindings or {}).items():
        if isinstance(reference, int) and 0 <= reference < 2**31:
            yield f"{printable(name)} is response {letter(reference)}"


def program_outputs(program: RecordedPassage, shown: str) -> Iterator[tuple[str, str]]:
    """Yield what a program printed, with headings; its output is left out if the judge was `shown` all."""
    if program.status == "refused":
        yield "refused", program.reason
        return
    if program.stdout.strip() not in shown:
        unfinished = ", unfinished" * (program.status not in _FINISHED)
        yield f"standard output{unfinished}", program.stdout
    if program.stderr:
        yield "standard error", program.stderr


def row_line(row: ResultRow, apart: Collection[str] = ()) -> Text:
    """Return a row as one line: id, verdict with its scores or votes, right or wrong, output and check.

    Untrusted text is escaped. For `apart` see `decided_text`.
    """
    outcome = outcome_text(row)
    line = Text(f"{printable(row.id, 24):<12}  {printable(verdict_text(row), 40):<14}  ")
    line.append(f"{outcome:<6}", _STYLES.get(outcome, ""))
    if row.verdict_decided is False:
        line.append("  undecided")
    elif row.verdict_decided and row.programs and row.id in apart:
        line.append("  copied program")
    # The output comes first: it decided the verdict, and a narrow terminal cuts the end of the line.
    output, check = deciding_lines(row)
    line.append(f"  {' <- '.join(filter(None, (printable(output, _SHORT_OUTPUT), check)))}")
    line.rstrip()
    return line


def print_row(console: Console, row: ResultRow, apart: Collection[str] = ()) -> None:
    """Print a row's responses side by side, its criteria, then every dialogue with programs and outputs.

    Untrusted text is escaped. Each dialogue states which response its letters stand for. For `apart` see
    `decided_text`.
    """
    console.print(_heading(row, apart))
    _print_question(console, row)
    for number, criterion in enumerate(row.criteria, 1):
        console.print(Text(f"\n{criterion_heading(number, criterion)}:", "bold"))
        if criterion.text:
            console.print(_indented(Text(printable_text(criterion.text))))
        for line in (criterion_text(criterion), *audit_lines(row, number - 1)):
            console.print(Text(f"  {line}"))
    for heading, view in headed_views(row):
        console.print()
        _print_view(console, heading, view)
    console.print()


def _heading(row: ResultRow, apart: Collection[str]) -> Text:
    line = Text(f"row {printable(row.id)}", "bold")
    line.append(f": {printable(verdict_text(row))}", "bold")
    outcome = outcome_text(row)
    if row.label is not None:
        line.append(f", the label is {letter(row.label)}: ")
        line.append(outcome, _STYLES.get(outcome, ""))
    elif row.rating is not None:
        line.append(f", people say {rating_text(row.rating)}")
        if row.correct is not None and row.satisfied_from is not None:
            line.append(f", and the score passes from {row.satisfied_from:g}: ")
            line.append(outcome, _STYLES.get(outcome, ""))
    if row.detail:
        line.append(f" ({printable(row.detail)})")
    facts = {
        "format": row.format,
        "model": "" if row.jury else row.model,
        "from": row.where,
        "domain": row.domain,
        "tags": ", ".join(row.tags),
    }
    named = [f"{name} {printable(fact)}" for name, fact in facts.items() if fact]
    line.append("\n" + "; ".join(named), "dim")
    if row.jury:
        line.append(f"\njury: {jury_text(row)}", "bold")
    if decided := decided_text(row, apart):
        line.append(f"\n{decided}", "bold")
    return line


def prompt_parts(row: ResultRow) -> list[tuple[str, str]]:
    """Return the messages of a row's prompt, of a transcript its parts, each with a heading in one line."""
    if is_transcript(row.conversation):
        return [(f"prompt, {heading}", text) for _, heading, text in transcript_parts(row.conversation)]
    return [(f"prompt, {message.role}", message.content) for message in row.conversation]


def _print_question(console: Console, row: ResultRow) -> None:
    if row.prompt is None or row.responses is None:
        console.print("\nThe prompt and the responses are not in the file.", style="dim")
        return
    for heading, text in prompt_parts(row):
        _print_passage(console, f"\n{heading}:", text)
    if given := _files(row, None):
        console.print(_indented(Text("\n").append_text(given)))
    console.print()
    headings = [response_heading(row, index) for index in range(len(row.responses))]
    texts = [
        Text("\n\n").join(filter(None, (_response(one), _files(row, index))))
        for index, one in enumerate(row.shown_responses)
    ]
    for pair in _side_by_side(headings, texts, console.width // _NARROWEST):
        console.print(pair)
    if row.cut:
        console.print(
            "(thinking was left out, or long responses were cut, before they were judged)", style="dim"
        )
    if row.reference:
        _print_passage(console, "\nreference:", row.reference)


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """The files of a response or of the prompt, as a judge is shown them."""

    heading: str
    """Whose files they are and, if their contents were found, how many and their size."""
    missing: str
    """Why names and sizes alone are listed, in one line; empty if the contents were found."""
    files: list[ListedFile]


def listed_folder(row: ResultRow, index: int | None) -> ListedFolder | None:
    """Return the files of a response, or with None those of the prompt; None without any.

    Names and sizes alone are in the result file itself.
    """
    if index is None:
        recorded, of = row.prompt_files, "the prompt"
        if not recorded:
            return None
    elif index < len(row.files):
        recorded = row.files[index]
        of = f"response {letter(index)}" if len(row.files) > 1 else "this response"
    else:
        return None
    try:
        folder, given = row.folder(index), NO_FILES if index is None else row.folder(None)
        return ListedFolder(folder_heading(folder, of), "", list(listed_files(folder, given)))
    except ValueError as error:
        names = (f"{shown_path(path)}, {file.bytes:,} bytes" for path, file in sorted(recorded.items()))
        return ListedFolder(f"files of {of}", str(error), list(map(ListedFile, names)))


def _files(row: ResultRow, index: int | None) -> Text:
    """Return the files of a response or of the prompt, with changes in the colours of a difference."""
    listed = listed_folder(row, index)
    if listed is None:
        return Text()
    lines = [Text(printable(listed.heading), "bold")]
    lines += [Text(printable(listed.missing), "dim")] * bool(listed.missing)
    for file in listed.files:
        lines.append(Text(printable(file.line)))
        for line in printable_text(file.body).splitlines():
            style = _DIFF.get(line[:1], "") if file.is_diff else "dim"
            lines.append(Text(f"    {line}", style))
    return Text("\n").join(lines)


def _response(response: Response) -> Text:
    """Return a response whole, the headings of a transcript in bold."""
    text = Text(printable_text(response_text(response, sys.maxsize)))
    if not isinstance(response, str):
        text.highlight_regex(r"(?m)^\[message .*\]$", "bold")
    return text


def _side_by_side(headings: Sequence[str], texts: Sequence[Text], columns: int) -> Iterator[Table]:
    """Yield tables without lines, each with as many responses as fit next to each other."""
    columns = max(1, columns)
    for start in range(0, len(texts), columns):
        shown = range(start, min(start + columns, len(texts)))
        grid = Table.grid(padding=(0, 3), expand=True)
        for _ in shown:
            grid.add_column(ratio=1, overflow="fold")
        grid.add_row(*(Text(headings[index], "bold") for index in shown))
        grid.add_row(*(_indented(texts[index]) for index in shown))
        yield grid


def _print_view(console: Console, heading: str, view: RecordedView) -> None:
    console.print(Text(heading, "bold"))
    for passage, heading, shown in view_passages(view):
        _print_passage(console, f"  {heading}", passage.text)
        if passage.kind == "program":
            for note in variable_notes(passage):
                console.print(Text(f"    {note}", "dim"))
            for name, text in program_outputs(passage, shown):
                _print_passage(console, f"  {name}", text)
    console.print(Text(view_verdict(view), "bold"))
    if view.evidence:
        console.print(Text(evidence_text(view)))
    if view.reward is not None:
        console.print(Text(reward_text(view)))


def _print_passage(console: Console, heading: str, text: str) -> None:
    console.print(Text(heading, "bold"))
    console.print(_indented(Text(printable_text(text.rstrip("\n")))))


def _indented(text: Text) -> Padding:
    """Return an untrusted text, indented so that no line of it can pass for ours."""
    return Padding(text, (0, 0, 0, 4))
