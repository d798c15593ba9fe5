"""The model card of a trained miniature, and the table of held-out accuracies of any run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tirjudge_training.heldout import percentage
from tirjudge_training.methods import BASE, HELDOUT, Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.teacher import DialogueRendering

HEAD = """\
---
license: apache-2.0
library_name: transformers
tags: [llm-as-a-judge, tool-integrated-reasoning, demonstration]
---

# tirjudge miniature

A demonstration model for its families of checkable constraints, and no general judge: on any other prompt its
verdicts are chance. It judges single responses, pairs and lists by writing a Python program, reading the
program's output and only then giving its verdict. Its lists had four responses: it knows no letter beyond D.
"""


def model_card(recipe: Recipe, command: str, pipeline: Pipeline, results: Mapping[str, Any]) -> str:
    """Return the card as Markdown; `results` holds the result of each stage by name."""
    before, after = results[HELDOUT + BASE], results[_measured(pipeline)]
    return "\n".join(
        (HEAD, *_made(recipe, command, pipeline, results), *_accuracy(before, after), *_families(after))
    )


def _made(recipe: Recipe, command: str, pipeline: Pipeline, results: Mapping[str, Any]) -> Iterator[str]:
    loss = f"RL trains with the loss `{recipe.rl.loss}`; every" if _has_rl(pipeline) else "Every"
    yield "## How it was made\n"
    yield f"    {command}\n"
    yield (
        f"From random weights, with seed {recipe.seed}: a supervised warm-up, then "
        f"{pipeline.about}. "
        f"{loss} program ran in the sandbox, and its output is "
        "left out of the loss. All training tasks are generated from the constraint families below; "
        f"{_provenance(pipeline, results)}. The stages:\n"
    )
    # Without the controls, which did not contribute to this model.
    for stage in pipeline.making:
        if line := stage.describe(results[stage.name]):
            yield f"* `{stage.name}`: {line}"
    yield ""


def _provenance(pipeline: Pipeline, results: Mapping[str, Any]) -> str:
    """Return which other models' outputs are in the training data."""
    for stage in pipeline.making:
        if isinstance(stage, DialogueRendering):
            return f"{results[stage.name]['samples']:,} dialogues of the SFT are {stage.config.model}'s"
    return "no other model's output is in the training data"


def _has_rl(pipeline: Pipeline) -> bool:
    return any(isinstance(stage, Reinforcement) for stage in pipeline.making)


def _measured(pipeline: Pipeline) -> str:
    """Return the stage that measured the result of the run."""
    return next(HELDOUT + name for name, stage in pipeline.models.items() if stage == pipeline.result)


def _accuracy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    yield "## Held-out accuracy\n"
    yield (
        "Greedy, on words, thresholds and wordings that training never saw; Wilson's 95 % interval. A "
        "pointwise task counts as right if the better response gets the higher score.\n"
    )
    yield "| format | after the warm-up | at the end | program errors | calls per verdict |"
    yield "|---|---|---|---|---|"
    for name, result in after.items():
        calls = result["calls_per_verdict"]
        yield (
            f"| {name} | {percentage(before[name]['accuracy'])} | {percentage(result['accuracy'])} "
            f"| {percentage(result['program_errors'])} | {'-' if calls is None else f'{calls:.2f}'} |"
        )
    yield ""


def _families(after: Mapping[str, Any]) -> Iterator[str]:
    yield "## By family, at the end\n"
    names = list(after)
    yield f"| family | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for family in sorted({family for result in after.values() for family in result["families"]}):
        cells = (result["families"].get(family) for result in after.values())
        yield f"| {family} | {' | '.join(percentage(cell['accuracy']) if cell else '-' for cell in cells)} |"
    yield ""


def table(pipeline: Pipeline, results: Mapping[str, Any]) -> str:
    """Return Markdown: one row per measured model, one column per judge, with 95 % intervals."""
    rows = {name: results[HELDOUT + name] for name in pipeline.models}
    judges = list(next(iter(rows.values()), {}))
    lines = [f"| model | {' | '.join(judges)} |", f"|---|{'---|' * len(judges)}"]
    for name, results_of_model in rows.items():
        cells = (percentage(results_of_model[judge]["accuracy"]) for judge in judges)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
