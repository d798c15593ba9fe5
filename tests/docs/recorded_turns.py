"""Replays the dialogues of result files: the turns are recorded, and the sandbox runs the programs again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tirjudge import Judge
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import By, Context


def turns(segments: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts that the model wrote; each but the last one ends with a program."""
    written = [""]
    for segment in segments:
        if segment["kind"] == "output":
            written.append("")
        elif segment["kind"] == "program":
            written[-1] += f"```python\n{segment['text']}```\n"
        else:
            written[-1] += segment["text"]
    return written


def replay(results: Sequence[str]) -> None:
    """Let every Judge of this process give the recorded answers to the same responses in the same order."""
    recorded = {}
    lines = [line for file in results for line in Path(file).read_text(encoding="utf-8").splitlines()]
    for row in map(json.loads, lines):
        for view in row["views"]:
            recorded[tuple(row["responses"][index] for index in view["order"])] = turns(view["segments"])

    def turn(context: Context) -> str:
        prompt = "".join(message.content for message in context.prompt.messages)
        number = sum(segment.by is By.SANDBOX for segment in context.segments)
        found = [dialogue for shown, dialogue in recorded.items() if _in_order(shown, prompt)]
        assert len(found) == 1, prompt
        return found[0][number]

    opened = Judge.__init__

    def replaying(self: Judge, **options: Any) -> None:
        opened(self, generator=ScriptedGenerator(turn), **options)

    Judge.__init__ = replaying  # type: ignore[assignment,method-assign]


def _in_order(shown: Iterable[str], prompt: str) -> bool:
    end = 0
    for response in shown:
        place = prompt.find(response, end)
        if place == -1:
            return False
        end = place + len(response)
    return True
