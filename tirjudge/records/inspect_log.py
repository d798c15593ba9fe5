"""Result files as logs of Inspect (inspect.aisi.org.uk), written by inspect_ai's own log API.

One sample is one row: the prompt is its input, the responses are its choices, the label is its target, and
the dialogues are its messages and events. The records have the fields of inspect_ai's log classes, which
validate them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tirjudge.records.answers import letters_of
from tirjudge.records.result_row import RecordedPassage, RecordedView, ResultRow, model_of, read_result_rows
from tirjudge.records.text import listed_folder, prompt_parts, view_name
from tirjudge.records.verdicts import JurorVerdict, encodable
from tirjudge.storage.json_lines import JsonObject
from tirjudge.storage.result_file import recorded_settings
from tirjudge_environments.messages import conversation_text, is_transcript, response_text
from tirjudge_environments.orders import letter

TOOL = "python"
"""The name of Inspect's own tool, whose `code` its viewer shows as a program."""
_ERRORS = {
    "refused": "approval",
    "wall_limit": "timeout",
    "cpu_limit": "timeout",
    "memory_limit": "limit",
    "output_limit": "limit",
    "sandbox_failed": "sandbox_unavailable",
}
"""Status of a program to Inspect's type of error; any other status but `ok` is `unknown`."""


@dataclass(slots=True)
class Dialogue:
    """One view as Inspect's records. Each has the fields of inspect_ai's class of that name."""

    row: ResultRow
    view: RecordedView
    model: str
    started: str
    """The time of every event, in ISO 8601: result files hold durations and no times."""
    number: int
    """Position of the view in its row; ids of messages, calls and spans contain it."""
    messages: list[JsonObject] = field(default_factory=list)
    events: list[JsonObject] = field(default_factory=list)
    _waiting: deque[tuple[str, RecordedPassage]] = field(default_factory=deque)
    """Programs whose output was not shown yet, with their ids."""
    _programs: int = 0

    def build(self, usage: JsonObject, seconds: float) -> None:
        """Fill `messages` and `events`; `usage` and `seconds` are totals of the whole view."""
        span = f"view-{self.number}"
        self._add({"event": "span_begin", "id": span, "type": "view", "name": view_name(self.view)})
        self._add({"event": "info", "source": "tirjudge", "data": self._seen()})
        self.messages.append(self._message("user", self._question()))
        for turn in _turns(self.view.segments):
            if isinstance(turn, RecordedPassage):
                self._result(turn)
            else:
                self._turn(turn)
        # A program that ended the dialogue has no output that was shown.
        while self._waiting:
            self._result(None)
        models = [event for event in self.events if event["event"] == "model"]
        if models:
            # Result files count tokens by view and not by turn, so the last turn has those of the whole view.
            models[-1]["output"]["usage"] = usage
            models[-1]["output"]["time"] = models[-1]["working_time"] = seconds
        self._add({"event": "span_end", "id": span})

    def _turn(self, turn: list[RecordedPassage]) -> None:
        """Log one turn of the judge, with the requested programs."""
        calls = []
        for program in (part for part in turn if part.kind == "program"):
            self._programs += 1
            id = f"program-{self.number}-{self._programs}"
            self._waiting.append((id, program))
            calls.append(
                {
                    "id": id,
                    "function": program.tool or TOOL,
                    "arguments": _arguments(program),
                    "type": "function",
                }
            )
        content: list[JsonObject] = [
            {"type": "reasoning", "reasoning": part.text}
            if part.hidden
            else {"type": "text", "text": part.text}
            for part in turn
            if part.kind == "reasoning"
        ]
        message = self._message("assistant", content) | {"source": "generate", "model": self.model}
        message |= {"tool_calls": calls} if calls else {}
        stop = "tool_calls" if calls else "max_tokens" if self.view.stop == "token_budget" else "stop"
        output = {"model": self.model, "choices": [{"message": message, "stop_reason": stop}]}
        output["completion"] = "\n".join(part["text"] for part in content if part["type"] == "text")
        self._add(
            {
                "event": "model",
                "model": self.model,
                "input": list(self.messages),
                "tools": [],
                "tool_choice": "auto",
                "config": {},
                "output": output,
            }
        )
        self.messages.append(message)

    def _result(self, shown: RecordedPassage | None) -> None:
        """Log the end of the first waiting program and the text that the judge was shown, if any."""
        text = "" if shown is None else shown.text
        if not self._waiting:
            self.messages.append(self._message("user", text))
            return
        id, program = self._waiting.popleft()
        error = _error(program)
        self._add(
            {
                "event": "tool",
                "id": id,
                "function": program.tool or TOOL,
                "arguments": _arguments(program),
                "result": text if shown is not None else program.stdout,
                "error": error,
                "failed": error is not None,
                "metadata": {
                    "status": program.status,
                    "exit_code": program.exit_code,
                    "stdout": program.stdout,
                    "stderr": program.stderr,
                    "seed": program.seed,
                    "variables": program.bindings,
                },
            }
        )
        if shown is not None:
            answer = {"tool_call_id": id, "function": program.tool or TOOL, "error": error}
            self.messages.append(self._message("tool", text) | answer)

    def _seen(self) -> JsonObject:
        """Return the meaning of the dialogue's letters."""
        meant = {name: f"response {letter(index)}" for name, index in letters_of(self.view.order).items()}
        alone = {"alone": f"response {letter(self.view.order[0])}"} if len(self.view.order) == 1 else {}
        return {"shown as": meant or alone}

    def _question(self) -> str:
        """Return the prompt, reference, criterion and responses in the order shown, for the judge's prompt.

        Result files do not have the prompt itself, which the judge format makes from them.
        """
        row = self.row
        if row.prompt is None or row.responses is None:
            return "(the prompt and the responses are not in the result file)"
        parts = [f"[{heading.removeprefix('prompt, ')}]\n{text}" for heading, text in prompt_parts(row)]
        parts += self._listed(" of the prompt", None)
        parts += [f"[reference]\n{row.reference}"] if row.reference else []
        number = self.view.criterion
        if number is not None and number < len(row.criteria):
            parts.append(f"[criterion]\n{row.criteria[number].text}")
        names = [f" {name}" for name in letters_of(self.view.order)] or [""]
        for name, index in zip(names, self.view.order, strict=True):
            given = row.shown_responses[index : index + 1]
            response = response_text(given[0]) if given else "(not in the result file)"
            parts += [f"[response{name}]\n{response}", *self._listed(f" of response{name}", index)]
        return "\n\n".join(parts)

    def _listed(self, of: str, index: int | None) -> list[str]:
        """Return the files of a response, or with None those of the prompt; empty without any."""
        listed = listed_folder(self.row, index)
        if listed is None:
            return []
        missing = filter(None, [listed.missing])
        return ["\n".join([f"[files{of}]", *missing, *(file.text for file in listed.files)])]

    def _message(self, role: str, content: str | list[JsonObject]) -> JsonObject:
        return {"id": f"message-{self.number}-{len(self.messages)}", "role": role, "content": content}

    def _add(self, event: JsonObject) -> None:
        inside = {} if event["event"].startswith("span_") else {"span_id": f"view-{self.number}"}
        self.events.append({"timestamp": self.started, "working_start": 0.0, **inside, **event})


def _turns(passages: list[RecordedPassage]) -> Iterator[list[RecordedPassage] | RecordedPassage]:
    """Yield the judge's turns, and between turns the outputs shown to the judge."""
    turn: list[RecordedPassage] = []
    for passage in passages:
        if passage.kind not in ("output", "question"):
            turn.append(passage)
            continue
        if turn:
            yield turn
        turn = []
        yield passage
    if turn:
        yield turn


def _arguments(program: RecordedPassage) -> JsonObject:
    """Return the arguments of a call: a program's source, or the text that another tool was called with."""
    return {"arguments" if program.tool else "code": program.text}


def _error(program: RecordedPassage) -> JsonObject | None:
    if program.status == "ok":
        return None
    last = (program.stderr.strip().splitlines() or [""])[-1]
    message = program.reason or last or program.status
    return {"type": _ERRORS.get(program.status, "unknown"), "message": message}


_UNKNOWN = "unknown"


def write_inspect_log(results: Path, folder: Path) -> Path:
    """Write a result file as a log into a folder, and return its path; the same file gets the same name.

    The whole log is in memory. Raises ValueError, in one line, without inspect_ai, for a file that is no
    result file and for one without rows; OSError.
    """
    try:
        from inspect_ai.log import EvalLog, write_eval_log
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "inspect_ai":
            raise
        raise ValueError("logs of Inspect need an extra: pip install 'tirjudge[inspect]'") from None
    record = inspect_record(results)
    folder.mkdir(parents=True, exist_ok=True)
    spec = record["eval"]
    place = folder / f"{spec['created'].replace(':', '-')}_{spec['task']}_{spec['task_id']}.eval"
    write_eval_log(EvalLog.model_validate(record), place)
    return place


def inspect_record(results: Path) -> JsonObject:
    """Return the log of a result file as JSON values with the fields of inspect_ai's `EvalLog`.

    Raises as `write_inspect_log` does.
    """
    created = datetime.fromtimestamp(results.stat().st_mtime, UTC).isoformat(timespec="seconds")
    settings = recorded_settings(results) or {}
    models, credits = Counter[str](), list[float]()
    samples = []
    for row, _ in read_result_rows(results):
        models[row.model or _UNKNOWN] += 1
        credits += [] if row.correct is None else [row.correct]
        samples.append(_sample(row, created))
    if not samples:
        raise ValueError(f"{results} has no rows")
    model = models.most_common(1)[0][0]
    task = str(settings.get("benchmark") or results.name.split(".")[0])
    name = "".join(mark if mark.isalnum() or mark in "-." else "-" for mark in task)
    digest = hashlib.blake2b(str(results.resolve()).encode(errors="surrogateescape"), digest_size=6)
    record = {
        "status": "success",
        "eval": {
            "created": created,
            "task": name or "judgments",
            "task_id": digest.hexdigest(),
            "dataset": {
                "name": results.name,
                "samples": len(samples),
                "sample_ids": [sample["id"] for sample in samples],
            },
            "model": model,
            "config": {},
            "packages": {"tirjudge": version("tirjudge")},
            "metadata": {name: value for name, value in settings.items() if value not in (None, "", {})},
        },
        "results": _results(samples, credits),
        "stats": {"started_at": created, "completed_at": created, "model_usage": _total(samples)},
        "samples": samples,
    }
    storable: JsonObject = _storable(record)
    return storable


def _sample(row: ResultRow, created: str) -> JsonObject:
    model = row.model or _UNKNOWN
    messages, events, seconds = [], [], 0.0
    for number, view in enumerate(row.views):
        dialogue = Dialogue(row, view, model_of(view, row.jury) or model, created, number)
        dialogue.build(_usage(view), view.seconds)
        messages += dialogue.messages
        events += dialogue.events
        seconds += view.seconds
    scores = _scores(row)
    target = "" if row.label is None else letter(row.label)
    for name, score in scores.items():
        events.append(
            {
                "event": "score",
                "timestamp": created,
                "working_start": 0.0,
                "scorer": name,
                "score": score,
                "target": target,
            }
        )
    answers = [message for message in messages if message["role"] == "assistant"][-1:]
    choices = [{"message": message, "stop_reason": "stop"} for message in answers]
    plain = [{"role": one.role, "content": one.content} for one in row.prompt or ()]
    prompt = conversation_text(row.conversation) if is_transcript(row.conversation) else plain
    return {
        "id": row.id,
        "epoch": 1,
        "input": prompt or "(the prompt is not in the result file)",
        "choices": None if row.responses is None else list(map(response_text, row.shown_responses)),
        "target": target,
        "messages": messages,
        "output": {"model": model, "choices": choices},
        "scores": scores,
        "metadata": _metadata(row),
        "events": events,
        "model_usage": {one.model: _usage(one) for one in row.jury} or {model: _usage(row)},
        "total_time": seconds,
        "working_time": seconds,
    }


def _scores(row: ResultRow) -> JsonObject:
    """Return the verdict, and for a labelled row whether it is right: 1, 0, or a share for a tie."""
    scores = dict(enumerate(row.scores)) if row.scores else {}
    named = {letter(index): score for index, score in scores.items()}
    value: str | float | None = row.verdict
    if value is None and len(scores) == 1:
        value = scores[0]
    found: JsonObject = {
        "verdict": {
            "value": "none" if value is None else value,
            "answer": row.verdict,
            "explanation": row.detail or (row.views[0].last_turn.text.strip() if row.views else ""),
            "metadata": {
                "scores": named or None,
                "stop": row.stop,
                "decided": row.verdict_decided,
                "guess": row.guess or None,
            },
        }
    }
    if row.correct is not None:
        found["correct"] = {"value": row.correct, "answer": row.verdict}
    return found


def _metadata(row: ResultRow) -> JsonObject:
    rewards = [view.reward and view.reward.model_dump() for view in row.views]
    return {
        "format": row.format,
        "domain": row.domain,
        "tags": row.tags,
        "from": row.where,
        "flipped": row.flipped,
        "cut": row.cut,
        "rewards": rewards if any(rewards) else None,
    }


def _results(samples: list[JsonObject], credits: list[float]) -> JsonObject:
    """Return the `EvalResults`: the accuracy of labelled rows, and the share of rows with a verdict."""
    scores = []
    if credits:
        mean = math.fsum(credits) / len(credits)
        squares = math.fsum((credit - mean) ** 2 for credit in credits)
        error = math.sqrt(squares / (len(credits) - 1) / len(credits)) if len(credits) > 1 else 0.0
        scores.append(_eval_score("correct", len(credits), len(samples), accuracy=mean, stderr=error))
    decided = sum(sample["scores"]["verdict"]["metadata"]["stop"] == "verdict" for sample in samples)
    share = decided / len(samples)
    scores.append(_eval_score("verdict", len(samples), len(samples), share_with_a_verdict=share))
    return {"total_samples": len(samples), "completed_samples": len(samples), "scores": scores}


def _eval_score(name: str, scored: int, total: int, **metrics: float) -> JsonObject:
    return {
        "name": name,
        "scorer": name,
        "scored_samples": scored,
        "unscored_samples": total - scored,
        "metrics": {metric: {"name": metric, "value": value} for metric, value in metrics.items()},
    }


def _total(samples: list[JsonObject]) -> JsonObject:
    total: dict[str, Counter[str]] = {}
    for sample in samples:
        for model, usage in sample["model_usage"].items():
            total.setdefault(model, Counter()).update(usage)
    return {model: dict(usage) for model, usage in total.items()}


def _usage(used: ResultRow | RecordedView | JurorVerdict) -> dict[str, int]:
    read, written = used.prompt_tokens, used.completion_tokens
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


def _storable(value: Any) -> Any:
    """Replace lone surrogates, which models and programs may write and UTF-8 cannot represent."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {_storable(key): _storable(one) for key, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, list) else value
