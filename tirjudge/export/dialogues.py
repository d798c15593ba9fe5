"""Recorded dialogues as Inspect's messages and events: turns of the judge, tool calls and their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tirjudge.records.answers import letters_of
from tirjudge.records.judged_row import RecordedPassage, RecordedRow, RecordedView
from tirjudge.records.text import view_name
from tirjudge_environments.orders import letter

JsonObject = dict[str, Any]

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

    row: RecordedRow
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
        """Fill `messages` and `events`; `usage` and `seconds` are those of the whole view."""
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
            models[-1]["output"]["usage"] = usage
            models[-1]["output"]["time"] = models[-1]["working_time"] = seconds
        self._add({"event": "span_end", "id": span})

    def _turn(self, turn: list[RecordedPassage]) -> None:
        """Log one turn of the judge, with the programs that it asked for."""
        calls = []
        for program in (part for part in turn if part.kind == "program"):
            self._programs += 1
            id = f"program-{self.number}-{self._programs}"
            self._waiting.append((id, program))
            calls.append(
                {"id": id, "function": TOOL, "arguments": {"code": program.text}, "type": "function"}
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
                "function": TOOL,
                "arguments": {"code": program.text},
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
            answer = {"tool_call_id": id, "function": TOOL, "error": error}
            self.messages.append(self._message("tool", text) | answer)

    def _seen(self) -> JsonObject:
        """Return what the letters of the dialogue mean."""
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
        parts = [f"[{message.role}]\n{message.content}" for message in row.prompt]
        parts += [f"[reference]\n{row.reference}"] if row.reference else []
        number = self.view.criterion
        if number is not None and number < len(row.criteria):
            parts.append(f"[criterion]\n{row.criteria[number].text}")
        names = [f" {name}" for name in letters_of(self.view.order)] or [""]
        for name, index in zip(names, self.view.order, strict=True):
            response = row.responses[index] if index < len(row.responses) else "(not in the result file)"
            parts.append(f"[response{name}]\n{response}")
        return "\n\n".join(parts)

    def _message(self, role: str, content: str | list[JsonObject]) -> JsonObject:
        return {"id": f"message-{self.number}-{len(self.messages)}", "role": role, "content": content}

    def _add(self, event: JsonObject) -> None:
        inside = {} if event["event"].startswith("span_") else {"span_id": f"view-{self.number}"}
        self.events.append({"timestamp": self.started, "working_start": 0.0, **inside, **event})


def _turns(passages: list[RecordedPassage]) -> Iterator[list[RecordedPassage] | RecordedPassage]:
    """Yield the turns of the judge, and between them the outputs that it was shown."""
    turn: list[RecordedPassage] = []
    for passage in passages:
        if passage.kind != "output":
            turn.append(passage)
            continue
        if turn:
            yield turn
        turn = []
        yield passage
    if turn:
        yield turn


def _error(program: RecordedPassage) -> JsonObject | None:
    if program.status == "ok":
        return None
    last = (program.stderr.strip().splitlines() or [""])[-1]
    message = program.reason or last or program.status
    return {"type": _ERRORS.get(program.status, "unknown"), "message": message}
