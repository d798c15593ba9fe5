"""Tokens per second, shares of time and peak memory of RL on one GPU, from random weights.

    python -m benchmarks.gpu_training --output FOLDER

Trains the miniature's recipe with a larger network of its kind, and summarises the run's `rl/metrics.jsonl`.
Groups are not filtered, so that every batch trains on all of its rollouts. The first batch, in which kernels
are chosen and compiled, is in `measured.json` but in no median. The same command resumes an interrupted run.
Without a GPU it computes in float32: `--parameters 1M --samples 64 --steps 2` takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import typer

from examples.miniature.__main__ import SFT, write_rows, write_start
from examples.miniature.model import MINIATURE, ShapeConfig
from examples.miniature.warmup_corpus import CorpusConfig
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.cli import train
from tirjudge_training.run import model_size

RECIPE = "examples/miniature/recipes/mini.toml"
UNITS = {"M": 10**6, "G": 10**9}
CORPUS = {"programs": 26, "readings": 10, "dialogues": 12}
"""Parts of the warm-up corpus per 48 samples, in the proportions of the miniature's recipe."""
ASPECT, EXPANSION = 64, 3
"""Hidden units per layer, and the width of the feed-forward part as a multiple of the hidden size."""
RESULT, START = "measured.json", "start"


def parameters(text: str) -> int:
    """Parse a number of parameters such as `100M`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "")
    return round(float(number) * UNITS.get(unit, 1))


def shape(least: int) -> ShapeConfig:
    """Return the smallest shape with at least so many parameters; the miniature's if that is enough.

    A layer of width h has about 12 h^2: 3 h^2 for attention with half as many key heads, and 9 h^2 for the
    feed-forward part.
    """
    if least <= MINIATURE.parameters:
        return MINIATURE
    hidden = 128 * max(1, round((least * ASPECT / 12) ** (1 / 3) / 128))
    heads = hidden // 64
    for layers in range(1, least):
        found = ShapeConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            head_dim=64,
            intermediate_size=EXPANSION * hidden,
        )
        if found.parameters >= least:
            return found
    raise ValueError(f"{least} parameters")


def assignments(options: argparse.Namespace) -> Iterator[str]:
    """Yield the changes to the recipe; learning rates decrease with the width of the network."""
    yield f"model.base={json.dumps(str(options.model or options.output / START / 'model'))}"
    yield f"data.train={json.dumps(str(options.output / 'train.jsonl'))}"
    yield f"data.heldout={json.dumps(str(options.output / 'heldout.jsonl'))}"
    if options.model is None:
        yield f"rl.learning_rate={5e-4 * slower(options)}"
    yield f"rl.steps={options.steps}"
    yield f"rl.groups={options.groups}"
    yield 'rl.filter="none"'
    yield "rl.replacement_rounds=0"
    yield f"rl.checkpoint_every={options.steps}"
    yield "rl.health.tool_use=0"
    yield "heldout.n=1"
    if options.generator == "vllm":
        yield 'rl.generator="vllm"'
        yield "rl.importance_cap=2.0"
        yield "rl.vllm.enable_sleep_mode=true"
        yield "rl.vllm.gpu_memory_utilization=0.7"
    yield from options.set


def slower(options: argparse.Namespace) -> float:
    """Return the factor of the learning rates, which decrease with the width of the network."""
    return MINIATURE.hidden_size / shape(options.parameters).hidden_size


def prepare(options: argparse.Namespace) -> None:
    """Write the rows, and without a model the start of the training, if they are not there yet."""
    if not (options.output / "train.jsonl").exists():
        write_rows(options.output, train=options.groups * options.steps + 40, heldout=1, seed=options.seed)
    folder = options.output / START
    if options.model is None and not (folder / "model").exists():
        parts = {kind: options.samples * share // sum(CORPUS.values()) for kind, share in CORPUS.items()}
        sft = SFT.model_copy(update={"learning_rate": SFT.learning_rate * slower(options)})
        write_start(
            folder, CorpusConfig(**parts), sft=sft, shape=shape(options.parameters), seed=options.seed
        )


def measures(row: dict[str, Any]) -> dict[str, float]:
    """Return the measures of one batch; their names contain the units."""
    training = row["seconds/logprobs"] + row["seconds/train"]
    shares = {part: row[f"share/{part}"] for part in ("generation", "sandbox", "training")}
    return {
        "generated, tokens per second of the batch": row["tokens/generated"] / row["seconds/step"],
        "generated, tokens per second of generation": row["tokens/generated"] / row["seconds/generating"],
        "trained, tokens per second of training": row["tokens/trained"] / training,
        **{f"share of time, {part}": share for part, share in shares.items()},
        "share of time, the rest": 1 - sum(shares.values()),
        "seconds per batch": row["seconds/step"],
        **{name: value for name, value in row.items() if name.startswith("gib/")},
        "generated, tokens": row["tokens/generated"],
        "trained, tokens": row["tokens/trained"],
        "programs per rollout": row["tools/calls"],
        "program errors, share": row["tools/error_rate"],
        "reward": row["reward"],
        "sampler_gap": row["sampler_gap"],
    }


def spread(rows: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return median, minimum and maximum of every measure."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: {"median": median(values), "least": min(values), "most": max(values)}
        for name, values in columns.items()
    }


def measured(folder: Path, options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Return the content of `measured.json`."""
    rows = list(read_lines(folder / "rl" / "metrics.jsonl"))
    steady = rows[1:] or rows  # without the batch that compiles kernels
    network = model_size.shape(str(folder / "rl" / "model"))
    return {
        "command": command,
        "seed": options.seed,
        "machine": json.loads((folder / "rl" / "machine.json").read_text()),
        "parameters": network.parameters,
        "vocabulary": network.vocabulary,
        "batches": len(steady),
        "summary": spread([measures(row) for row in steady]),
        "metrics": rows,
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the summary for people, one measure per line."""
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    yield f"{found['parameters']:,} parameters; {machine}"
    yield f"seed {found['seed']}, n = {found['batches']} batches"
    yield f"{'':42}{'median':>12}{'least':>12}{'most':>12}"
    for name, one in found["summary"].items():
        yield f"{name:42}" + "".join(f"{shown(one[part]):>12}" for part in ("median", "least", "most"))


def shown(value: float) -> str:
    """Format a measure with three significant digits, or as a whole number from 1,000."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parameters", type=parameters, default="100M", help="the least number of parameters: 1M, 100M, 1G"
    )
    parser.add_argument("--model", type=Path, help="a model folder to start RL from, instead of the warm-up")
    parser.add_argument("--generator", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--samples", type=int, default=16_000, help="samples of the warm-up, 32 per step")
    parser.add_argument("--steps", type=int, default=20, help="generation batches of RL")
    parser.add_argument("--groups", type=int, default=32, help="groups of 8 rollouts per batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the recipe"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/gpu-training"), help="the run folder")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, write `measured.json` and print the summary; return the exit code."""
    options = parsed(arguments)
    assign = list(assignments(options))
    words = ["tirjudge", "train", "--recipe", RECIPE, "--seed", str(options.seed)]
    command = shlex.join([*words, *(word for one in assign for word in ("--set", one))])
    print(command, flush=True)
    prepare(options)
    try:
        train(recipe=RECIPE, output=options.output, assign=assign, seed=options.seed)
    except typer.Exit as stopped:
        return stopped.exit_code
    found = measured(options.output, options, command)
    (options.output / RESULT).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for line in lines(found):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
