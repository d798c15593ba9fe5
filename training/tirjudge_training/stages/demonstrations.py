"""The stage that holds the dialogues of a warm-up: a row's program runs, and the verdict follows its counts.

A demonstration is a column of a row: `program` (None where no program helps), `kept`, the number of
constraints that each response keeps, and `of`, their number. A dialogue with a program is learned only if
the program printed these numbers in the sandbox. A program `first` runs before it and decides nothing. A
row may have a column `program` instead, whose counts are what it prints; its dialogue is learned only if
the labelled response alone has the highest count. With `tool` and `arguments` a demonstration is a call of
a tool of `rl.tools` instead, which must succeed.

A format of checks takes a program that defines `check(response)`, whose counts the harness prints; without
a program its dialogue shows a check that returns an empty list.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from pydantic import Field

from tirjudge.console_text import printable
from tirjudge.progress import ProgressReporter
from tirjudge.records.result_row import failed
from tirjudge.rollout import as_finished
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import (
    ChatEncoder,
    Completion,
    Environment,
    Episode,
    Evidence,
    Finish,
    JudgeSession,
    JudgeTask,
    StopReason,
    Trajectory,
    View,
)
from tirjudge_environments.formats.checks import ChecksFormat
from tirjudge_environments.formats.reward_terms import NO_TOOL_DOMAINS
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import letter
from tirjudge_environments.programs.check_harness import EMPTY, ERROR
from tirjudge_environments.programs.evidence import program_evidence
from tirjudge_environments.programs.outputs import output_text, printed_counts
from tirjudge_environments.registry import with_tools
from tirjudge_environments.tools import open_tools
from tirjudge_environments.tools.base import Tool
from tirjudge_environments.types import FrozenModel
from tirjudge_sandbox import Execution, Sandbox, open_sandbox
from tirjudge_training.data.base import Data, demonstrated, trajectories
from tirjudge_training.data.own_rows import DEMONSTRATION
from tirjudge_training.model_folder import load_tokenizer
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask, full
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.sft import Sample
from tirjudge_training.stages.base import SAMPLES, Run, Size, Stage

AT_ONCE = 32
"""Rows whose programs run or wait at the same time."""
COUNT = re.compile(r"(\d+)(?: of \d+)?")
"""The constraints that a response keeps, in the output of a program: `2`, or `2 of 3`."""
OF = re.compile(r"^[A-Z]+ \d+ of (\d+)$", re.MULTILINE)
"""The number of constraints, in the output of a program."""
LEFT_OUT, DETAIL = "left_out", "detail"
"""The keys of a sample's `Fault` and of the words about it."""
SCORE = "score"
"""Tag of a judge that sees one response alone; other judges name a letter."""
GOOD, BAD = 8, 3
"""Scores of the labelled and of another response where nothing is counted."""


class Fault(StrEnum):
    """The reason for which a row's program or call is not learned, in the words of the report about them."""

    FAILED = "failed"
    UNREAD = "printed no count of each response"
    MISMATCH = "printed other counts than the row says"
    TIED = "did not tell the responses apart"
    WRONG = "contradicted the label"
    DOWN = "could not be run"
    FORBIDDEN = "belong to a domain in which no program may run"


class DemonstrationsConfig(FrozenModel):
    """The dialogues of a warm-up on the rows of `data.demonstrations`."""

    rows: int | None = Field(default=None, gt=0)
    """Number of rows; None is all rows. Every view of a row is a dialogue."""
    families: tuple[str, ...] = ()
    """Learn only from rows with no other constraint families than these; empty means all rows."""
    reasoning: bool = False
    """Without tools, state the true counts of all responses before the verdict."""


class Demonstrations(Stage):
    """Writes the demonstrated dialogues of rows as samples for supervised training."""

    config: DemonstrationsConfig
    rollout: RolloutConfig
    """The turns of a dialogue, the limits of its programs and the sandbox."""

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        # Rows finish out of order, so the finished ones are a set and not a prefix.
        done = {row["index"] for row in folder.read(SAMPLES)}
        tasks = self._tasks(run.data)
        left = [(index, task) for index, task in enumerate(tasks) if index not in done]
        if left:
            asyncio.run(self._hold_all(left, len(tasks), folder, run))
        rows = list(folder.read(SAMPLES))
        called = [row for row in rows if row.get("program") or row.get("call")]
        if called:
            line = learned_line(called)
            if not any(row["kept"] for row in rows):
                raise BadRecipe(
                    f"data.demonstrations: {line}; correct them, or train from labels alone without programs"
                )
            run.say(line)
        return {
            "prompts": len(rows),
            "kept": sum(bool(row["kept"]) for row in rows),
            "samples": sum(len(row["kept"]) for row in rows),
            "tokens": sum(len(sample["ids"]) for row in rows for sample in row["kept"]),
        }

    def size(self, data: Data) -> Size:
        return Size(f"{trajectories(data, self._tasks(data)):,} demonstrated dialogues")

    def check(self, data: Data) -> None:
        """Raise ValueError for missing rows, or for a judge whose dialogues cannot be written."""
        tasks = self._tasks(data)
        if not tasks:
            raise ValueError("data.demonstrations: no rows are left to learn from")
        for name in sorted({task.format for task in tasks}):
            if not isinstance(data.environments[name], TirFormat):
                raise ValueError(f"data.demonstrations: {name} is not one of TIR-Judge's formats")

    def _tasks(self, data: Data) -> list[FormattedTask]:
        return demonstrated(data, self.config.rows, self.seed, self.config.families)

    async def _hold_all(
        self, left: Sequence[tuple[int, FormattedTask]], total: int, folder: RunFolder, run: Run
    ) -> None:
        tokenizer = load_tokenizer(run.model(self.start))
        encoder = ChatEncoder(tokenizer, enable_thinking=run.enable_thinking)
        progress = ProgressReporter(run.say, total=total, done=total - len(left))

        async def hold(index: int, formatted: FormattedTask) -> JsonObject:
            judge = with_tools(run.data.environments[formatted.format], tools)
            held = [
                await self._hold(judge, formatted.task, view, encoder, tokenizer.eos_token_id, sandbox, tools)
                for view in judge.views(formatted.task)
            ]
            trajectories = tuple(trajectory for trajectory, _ in held)
            (scores,) = judge.score([Episode(formatted.task, 0, trajectories)], {})
            right = full(scores, 1.0)
            samples = [Sample.of(trajectory) for trajectory in trajectories] if right else []
            shown = _demonstration(formatted.task)
            kind = "call" if shown.get("tool") is not None else "program"
            uses_tools = isinstance(judge, TirFormat) and judge.uses_tools(formatted.task)
            requested = uses_tools and bool(_request(shown))
            return {
                "index": index,
                "id": formatted.task.id,
                "format": formatted.format,
                "kept": [{"ids": sample.ids, "labels": sample.labels} for sample in samples],
                **({kind: True} if requested else {}),
                **(left_out(held, formatted.task.domain) if requested and not right else {}),
            }

        async with (
            open_sandbox(self.rollout.sandbox) as sandbox,
            open_tools(self.rollout.tools, sandbox) as tools,
        ):
            async for row in as_finished((hold(*one) for one in left), AT_ONCE):
                folder.append(SAMPLES, row)
                progress.count(row)
        progress.report()

    async def _hold(
        self,
        judge: Environment,
        task: JudgeTask,
        view: View,
        encoder: ChatEncoder,
        end: int,
        sandbox: Sandbox,
        tools: Sequence[Tool],
    ) -> tuple[Trajectory, Fault | None]:
        """Hold one dialogue: the program or call, if the judge may make it, then the verdict.

        Returns the fault of a program whose output no verdict may follow.
        """
        session = JudgeSession(
            judge,
            task,
            view,
            sandbox,
            tools=tools,
            encoder=encoder,
            # The budget of sampling would drop long demonstrations, which SFT does by its own limit.
            budget=replace(self.rollout.budget, tokens=sys.maxsize),
            limits=self.rollout.limits,
        )
        assert isinstance(judge, TirFormat)  # see `check`
        writes_check = isinstance(judge, ChecksFormat)
        demonstration = _demonstration(task)
        program = demonstration.get("program")
        kept, of = demonstration.get("kept"), demonstration.get("of")
        counts = [int(kept[index]) for index in view.order] if kept else []
        request = _request(demonstration) if judge.uses_tools(task) else ""
        if writes_check and not request:
            request = _fence(EMPTY)
        first = _fence(demonstration.get("first")) if request else ""
        for text in filter(None, (first, request)):
            ids = tuple(encoder.text(text))
            await session.step(Completion(text=text, finish=Finish.STOP, token_ids=ids))
            if session.done and session.trajectory.verdict is None:
                return session.trajectory, None
        output = ""
        if request and (program is not None or writes_check):
            outcome = session.calls[-1].outcome
            # Counts that a program printed before it failed, or a check beside its error, decide nothing.
            if failed(session.calls[-1]) or not isinstance(outcome, Execution):
                return _without_verdict(session, Fault.FAILED)
            output = outcome.stdout
            if writes_check and output.startswith(ERROR):
                return _without_verdict(session, Fault.FAILED)
        if request and program is not None:
            if not kept:
                found, of = _printed(output, len(view.order))
                if found is None or (len(found) > 1 and found.count(max(found)) > 1):
                    return _without_verdict(session, Fault.UNREAD if found is None else Fault.TIED)
                counts = found
            # The verdict must follow the printed counts, and not the row's promise.
            elif [int(count) for count in COUNT.findall(output)] != counts:
                return _without_verdict(session, Fault.MISMATCH)
            if session.done:  # the counts are the verdict
                return session.trajectory, None
            text = verdict_from_counts(judge.tag, counts, of)
        elif self.config.reasoning and counts:
            text = counted_verdict(judge.tag, counts, of)
        else:
            text = bare_verdict(judge.tag, task, view, counts, of)
        if writes_check:
            # Its question asks for the answer alone.
            text = text.rpartition("\n")[2]
        ids = (*encoder.text(text), end)
        await session.step(Completion(text=text, finish=Finish.END, token_ids=ids))
        return session.trajectory, None


def _without_verdict(session: JudgeSession, fault: Fault) -> tuple[Trajectory, Fault]:
    session.fail(StopReason.MALFORMED, fault)
    return session.trajectory, fault


def _demonstration(task: JudgeTask) -> Mapping[str, Any]:
    return task.gold.get(DEMONSTRATION) or {}


def _request(demonstration: Mapping[str, Any]) -> str:
    """Return the fence with the call of a tool, or with the program; empty for a verdict at once."""
    if (tool := demonstration.get("tool")) is not None:
        return f"```{tool}\n{json.dumps(demonstration.get('arguments', {}), ensure_ascii=False)}\n```\n"
    return _fence(demonstration.get("program"))


def _fence(program: str | None) -> str:
    return f"```python\n{program.strip()}\n```\n" if program is not None else ""


def _printed(output: str, responses: int) -> tuple[list[int] | None, int | None]:
    """Return the counts in the output of a program, None if they cannot be read, and their maximum."""
    found = printed_counts(output, responses)
    if found is None or any(count < 0 or not count.is_integer() for count in found):
        return None, None
    totals = set(OF.findall(output))
    return [int(count) for count in found], int(totals.pop()) if len(totals) == 1 else None


def left_out(held: Iterable[tuple[Trajectory, Fault | None]], domain: str) -> JsonObject:
    """Return why the dialogues of a row with a program, and their own faults if any, are not learned."""
    for one, fault in held:
        for call in one.calls:
            if failed(call) and isinstance(call.outcome, Execution):
                return {LEFT_OUT: Fault.FAILED, DETAIL: output_text(call.outcome, 200).partition("\n")[0]}
        if one.stop.unscored:
            return {LEFT_OUT: Fault.DOWN, DETAIL: one.detail}
        if fault is None and program_evidence(one) is Evidence.TIE:
            fault = Fault.TIED
        if fault is not None:
            return {LEFT_OUT: fault}
    return {LEFT_OUT: Fault.FORBIDDEN if domain in NO_TOOL_DOMAINS else Fault.WRONG}


def learned_line(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line about the programs or calls of rows: how many are learned, why the others are not."""
    rows = sorted(rows, key=lambda row: row["index"])
    reasons = Counter(row[LEFT_OUT] for row in rows if LEFT_OUT in row)
    first = {reason: next(row for row in rows if row.get(LEFT_OUT) == reason) for reason in reasons}
    what = "calls" if any(row.get("call") for row in rows) else "programs"
    parts = [f"{sum(bool(row['kept']) for row in rows):,} of {len(rows):,} {what} are learned"]
    for reason, count in reasons.most_common():
        row = first[reason]
        detail = f": {row[DETAIL]}" if row.get(DETAIL) else ""
        parts.append(printable(f"{count:,} {reason} (first: row {row['id']}{detail})"))
    return "; ".join(parts)


def verdict_from_counts(tag: str, counts: Sequence[int], of: int | None) -> str:
    """Return the last turn after a program printed `counts`, in the order in which responses were shown."""
    if tag == SCORE:
        return f"It keeps {_count(counts[0], of)}.\n{_tagged(tag, score_of(counts[0], of))}"
    best = max(counts)
    name = letter(counts.index(best))
    if counts.count(best) > 1:
        return f"It is a tie at {_count(best, of)}.\n{_tagged(tag, name)}"
    return f"Response {name} keeps {_count(best, of)}.\n{_tagged(tag, name)}"


def counted_verdict(tag: str, counts: Sequence[int], of: int | None) -> str:
    """Return a turn that states the counts of all responses, without a program that printed them."""
    if tag == SCORE:
        return verdict_from_counts(tag, counts, of)
    stated = " ".join(f"Response {letter(i)} keeps {_count(kept, of)}." for i, kept in enumerate(counts))
    return f"{stated}\n{_tagged(tag, letter(counts.index(max(counts))))}"


def bare_verdict(tag: str, task: JudgeTask, view: View, counts: Sequence[int], of: int | None) -> str:
    """Return a turn with one short sentence and the labelled verdict."""
    if tag == SCORE:
        good = view.order[0] == task.label
        score = score_of(counts[0], of) if counts else GOOD if good else BAD
        return f"The response is {'good' if score > (GOOD + BAD) / 2 else 'weak'}.\n{_tagged(tag, score)}"
    assert task.label is not None
    name = letter(view.order.index(task.label))
    better = "better" if len(view.order) == 2 else "the best"
    return f"Response {name} is {better}.\n{_tagged(tag, name)}"


def score_of(kept: int, of: int | None) -> int:
    """Return the score from 1 to 10 of a response that keeps `kept` of `of` constraints."""
    return 1 + round(9 * min(1.0, kept / of)) if of else GOOD if kept else BAD


def _count(kept: int, of: int | None) -> str:
    return f"{kept} of {of}" if of else str(kept)


def _tagged(tag: str, answer: object) -> str:
    return f"<{tag}>{answer}</{tag}>"
