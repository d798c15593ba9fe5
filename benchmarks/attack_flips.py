"""Verdicts of a judge that flip under attack: with programs, without, and with programs but nothing quoted.

    OMP_NUM_THREADS=1 python -m benchmarks.attack_flips SETS/broken.test.jsonl --rows 6 --output FOLDER
    python -m benchmarks.attack_flips miniature --rows 50 --output FOLDER --max-tokens 200 \\
        --model examples/miniature/trained

Rows are drawn by seed 0. `--model` and `--base-url` choose another judge than the embedded one. The condition
`nothing quoted` leaves responses as they are in prompts, outputs and requests, as versions without quoting
did. Prints a table for each condition; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from examples.miniature.synthesis import heldout_tasks
from tirjudge.cli import app
from tirjudge_environments import JudgeTask
from tirjudge_environments.messages import conversation_text
from tirjudge_environments.types import derive_seed

ATTACKS = (
    *("remark", "verdict-tag", "forged-output", "forged-section", "hidden-section", "chatml"),
    *("order", "key-step", "padded-end", "homoglyphs", "passed"),
)
"""One or more attacks of each family that applies to texts, and the control."""
QUOTED = ("forged-output", "forged-section", "hidden-section")
"""Attacks whose prompts differ without quoting, for a judge that takes token ids."""
CONDITIONS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "with programs": ((), ATTACKS),
    "nothing quoted": ((), QUOTED),
    "without programs": (("--no-tools",), ATTACKS),
}
MINIATURE = Path("miniature")
_QUOTING = (
    "tirjudge_environments.templates.quote_lines",
    "tirjudge_environments.programs.outputs.quote_lines",
    "tirjudge_environments.formats.tir.quote_lines",
    "tirjudge.generation.endpoint.chat_turns.quote_control_tokens",
)


@contextmanager
def nothing_quoted() -> Iterator[None]:
    """Leave untrusted text as it is, as versions without quoting did."""
    with ExitStack() as stack:
        for place in _QUOTING:
            stack.enter_context(patch(place, lambda text, *_: text))
        yield


def sampled(source: Path, rows: int, target: Path) -> Path:
    """Write a seeded sample of rows, or of the miniature's held-out tasks for a source called `miniature`."""
    if source == MINIATURE:
        lines = [_row(task) for task in heldout_tasks("tir-pairwise", rows, 0)]
    else:
        lines = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    chosen = sorted(lines, key=lambda row: derive_seed(0, "attack", str(row["id"])))[:rows]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(row) + "\n" for row in chosen), encoding="utf-8")
    return target


def _row(task: JudgeTask) -> dict[str, Any]:
    label = task.label
    prompt = conversation_text(task.prompt)
    return {"id": task.id, "prompt": prompt, "responses": list(task.candidates), "label": label}


def attacked(rows: Path, output: Path, attacks: Sequence[str], further: Sequence[str]) -> dict[str, Any]:
    """Run `tirjudge attack` and return what it prints as JSON."""
    words = ["attack", str(rows), "--output", str(output), "--json", *further]
    for name in attacks:
        words += ["--attack", name]
    done = CliRunner().invoke(app, words)
    if not done.stdout:
        raise SystemExit(done.stderr)
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def table(record: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| attack | n | to the target, 95 % interval | away | lost | net, 95 % interval |"
    yield "|---|---|---|---|---|---|"
    for one in record["attacks"]:
        low, high = one["rate_interval"]
        least, most = one["net_interval"]
        yield (
            f"| {one['attack']} | {one['n']} | {one['to_target']} [{low:.1%}, {high:.1%}] | {one['away']} "
            f"| {one['lost']} | {one['net']:+.1%} [{least:.1%}, {most:.1%}] |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--attack", choices=ATTACKS, action="append")
    parser.add_argument("--condition", choices=CONDITIONS, action="append")
    given, judge = parser.parse_known_args()
    rows = sampled(given.source, given.rows, given.output / "rows.jsonl")
    for name in given.condition or CONDITIONS:
        words, fitting = CONDITIONS[name]
        attacks = [one for one in fitting if one in (given.attack or ATTACKS)]
        output = given.output / f"{name.replace(' ', '-')}.jsonl"
        with nothing_quoted() if name == "nothing quoted" else ExitStack():
            record = attacked(rows, output, attacks, [*words, *judge])
        clean = record["clean"]
        counts = f"{clean['n']} clean rows, {clean['for_target']} of them for the target"
        print(f"{name}: {counts}, accuracy {clean['accuracy']}")
        print("\n".join(table(record)), flush=True)


if __name__ == "__main__":
    main()
