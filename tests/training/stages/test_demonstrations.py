"""Demonstrated dialogues: the sandbox prints the counts, and the verdict follows them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.environments.tools.test_mcp import COMMAND
from tests.tirjudge.judge_command import command
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments.tools.base import ToolSettings
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.model_folder import load_tokenizer
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.sft import IGNORED
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.demonstrations import (
    Demonstrations,
    DemonstrationsConfig,
    counted_verdict,
    score_of,
    verdict_from_counts,
)

JUDGES = {
    name: EnvironmentConfig(name=name, options={"prompts": "smol", "shown_chars": 64})
    for name in ("tir-pairwise", "tir-listwise", "tir-pointwise")
}
CHECKS = {
    f"checks-{kind}": EnvironmentConfig(name=f"checks-{kind}", options={"prompts": "coder"})
    for kind in ("pairwise", "pointwise")
}
CHECK = "def check(r):\n    return [',' not in r, r.islower()]\n"
COUNT = CHECK + "for name, r in zip('ABCD', responses):\n    print(name, sum(check(r)), 'of', len(check(r)))"
ALONE = CHECK + "print(sum(check(response)), 'of', len(check(response)))"
TEXTS = ["all small", "No, not", "Big"]


def row(id: str, environment: str, program: str | None, count: int = 2, **others: Any) -> dict[str, Any]:
    kept = None if program is None else [2, 0, 1][:count]
    shown = {"program": program, "kept": kept, "of": None if program is None else 2}
    return {
        "id": id,
        "prompt": f"Question {id}",
        "responses": TEXTS[:count],
        "label": 0,
        "domain": "instruction-following" if program or "tool" in others else "helpfulness",
        "environment": environment,
        "families": ["punctuation:no_comma", "change_case:english_lowercase"] if program else ["general"],
        "demonstration": {**shown, **others},
    }


ROWS = [
    row("pair", "tir-pairwise", COUNT),
    row("list", "tir-listwise", COUNT, 3),
    row("single", "tir-pointwise", ALONE),
    row("general", "tir-pairwise", None),
    row("false", "tir-pairwise", COUNT, kept=[2, 1]),
    row("broken", "tir-pairwise", "print(1/0)"),
]


def hold(
    rows: list[dict[str, Any]],
    model: Path,
    folder: Path,
    data: Mapping[str, Any] = {},
    judges: Mapping[str, EnvironmentConfig] = JUDGES,
    **config: Any,
) -> dict[str, list[str]]:
    """Return, by row, what the model writes in each kept dialogue, with a bar where the sandbox wrote.

    `data` are keys of `[data]`, and `config` those of `[demonstrations]`.
    """
    folder.mkdir()
    tools = ToolSettings(servers=(COMMAND,), allowed=("search",)) if judges is JUDGES else ToolSettings()
    shown, other = folder / "demonstrations.jsonl", folder / "train.jsonl"
    shown.write_text("".join(json.dumps(one) + "\n" for one in rows))
    spare = [row(f"spare {i}", next(iter(judges)), COUNT) for i in range(3)]
    other.write_text("".join(json.dumps(one) + "\n" for one in spare))
    run = Run(
        folder,
        str(model),
        RowData(DataConfig(train=other, demonstrations=shown, **data), judges),
        lambda line: None,
    )
    stage = Demonstrations(
        name="demonstrations",
        config=DemonstrationsConfig(**config),
        rollout=RolloutConfig(max_tokens=2000, tools=tools),
    )
    stage.check(run.data)
    with RunFolder(folder / "demonstrations") as own:
        result = stage.work(own, run)
        assert stage.work(own, run) == result, "a finished stage adds nothing"
    found = list(read_lines(folder / "demonstrations" / "samples.jsonl"))
    assert result["kept"] == sum(bool(one["kept"]) for one in found)
    tokenizer = load_tokenizer(model)
    return {one["id"]: [written(sample, tokenizer) for sample in one["kept"]] for one in found}


def written(sample: Mapping[str, Any], tokenizer: Any) -> str:
    parts, before = [], True
    for label in sample["labels"]:
        if label == IGNORED and not before:
            parts.append("|")
        elif label != IGNORED:
            parts.append(tokenizer.decode([label]))
        before = label == IGNORED
    return "".join(parts).removesuffix(tokenizer.eos_token)


@pytest.fixture(scope="module")
def held(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return hold(ROWS, roomy_model, tmp_path_factory.mktemp("held") / "run")


def test_the_verdict_follows_what_the_program_printed(held: dict[str, list[str]]) -> None:
    (pair,), (several,) = held["pair"], held["list"]
    for text in (pair, several):
        program, verdict = text.split("|")
        assert program == f"```python\n{COUNT}\n```\n"
        letter = verdict[len("Response ")]
        assert verdict == f"Response {letter} keeps 2 of 2.\n<preference>{letter}</preference>"
    good, bad = (text.split("|")[1] for text in held["single"])
    assert good == "It keeps 2 of 2.\n<score>10</score>"
    assert bad == "It keeps 0 of 2.\n<score>1</score>"


def test_a_check_whose_counts_are_the_verdict_is_the_whole_demonstration(
    roomy_model: Path, tmp_path: Path
) -> None:
    rows = [
        row("pair", "checks-pairwise", CHECK),
        row("single", "checks-pointwise", CHECK),
        row("general", "checks-pairwise", None),
        row("false", "checks-pairwise", CHECK, kept=[2, 1]),
        row("broken", "checks-pairwise", "def check(r):\n    return [1 / 0]"),
        row("partly broken", "checks-pairwise", CHECK.replace("[", "[1 / 0, ")),
    ]
    held = hold(rows, roomy_model, tmp_path / "run", judges=CHECKS)
    fence = f"```python\n{CHECK}```\n"
    assert held["pair"] == [fence]
    assert held["single"] == [fence, fence]
    (text,) = held["general"]
    nothing = re.escape("```python\ndef check(response):\n    return []\n```\n|")
    assert re.fullmatch(nothing + "<preference>[AB]</preference>", text)
    assert held["false"] == held["broken"] == held["partly broken"] == []


def test_a_first_program_runs_before_and_decides_nothing(roomy_model: Path, tmp_path: Path) -> None:
    rows = [
        row("again", "tir-pairwise", COUNT, first="print('A 1 of 1\\nB 1 of 1')"),
        row("fails first", "tir-pairwise", COUNT, first="print(1/0)"),
    ]
    held = hold(rows, roomy_model, tmp_path / "run")
    (text,) = held["again"]
    first, program, verdict = text.split("|")
    assert first == "```python\nprint('A 1 of 1\\nB 1 of 1')\n```\n"
    assert program == f"```python\n{COUNT}\n```\n"
    assert "keeps 2 of 2" in verdict
    assert held["fails first"] == []


def test_general_rows_get_a_verdict_without_a_program(held: dict[str, list[str]]) -> None:
    (text,) = held["general"]
    assert "```" not in text
    assert text in {
        f"Response {letter} is better.\n<preference>{letter}</preference>" for letter in ("A", "B")
    }


def test_a_call_of_a_tool_is_shown_with_its_answer(roomy_model: Path, tmp_path: Path) -> None:
    rows = [
        row(query, "tir-pairwise", None, tool="search", arguments={"query": query})
        for query in ("capital", "Mars")
    ]
    held = hold(rows, roomy_model, tmp_path / "run")
    ((call, verdict),) = (text.split("|") for text in held["capital"])
    assert call == '```search\n{"query": "capital"}\n```\n'
    assert verdict in {f"Response {name} is better.\n<preference>{name}</preference>" for name in "AB"}
    assert held["Mars"] == [], "the server reports an error"


def test_what_the_sandbox_does_not_confirm_is_not_learned(held: dict[str, list[str]]) -> None:
    assert held["false"] == held["broken"] == []


def test_without_tools_the_counts_are_stated_or_left_out(roomy_model: Path, tmp_path: Path) -> None:
    bare = hold(ROWS[:3], roomy_model, tmp_path / "bare", {"no_tools": 1.0})
    told = hold(ROWS[:3], roomy_model, tmp_path / "told", {"no_tools": 1.0}, reasoning=True)
    assert not any("```" in text or "keeps" in text for texts in bare.values() for text in texts)
    (pair,) = told["pair"]
    assert pair.count("keeps") == 2
    assert "keeps 2 of 2." in pair
    assert "keeps 0 of 2." in pair


@pytest.mark.slow
def test_demonstrations_alone_train_the_model_of_a_run(roomy_model: Path, tmp_path: Path) -> None:
    shown, run = tmp_path / "demonstrations.jsonl", tmp_path / "run"
    shown.write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    words = ["train", "--recipe", "smol", "--model", str(roomy_model), "--data", str(shown)]
    settings = [
        "method=demonstrations",
        f"data.demonstrations={shown}",
        "data.heldout=",
        "data.max_prompt_tokens=",
    ]
    settings += [f"warmup.sft.{one}" for one in ("max_tokens=4000", "batch=2", "micro_batch=1")]
    words += [word for one in settings for word in ("--set", one)]
    planned = command(*words, "--plan", code=0)
    assert "memory of the device in RL" not in planned.output
    assert "replaced" not in planned.output
    done = command(*words, "--output", run, code=0)
    assert done.stdout.strip() == str(run / "warmup" / "model")
    assert {one.name for one in run.iterdir() if one.is_dir()} == {"demonstrations", "warmup"}
    assert (run / "warmup" / "model" / "adapter_model.safetensors").exists()


def test_the_plan_trains_on_the_dialogues_of_the_chosen_families(roomy_model: Path, tmp_path: Path) -> None:
    shown = tmp_path / "demonstrations.jsonl"
    rows = [row(f"{n}", "tir-pairwise", COUNT if n % 2 else None) for n in range(20)]
    shown.write_text("".join(json.dumps(one) + "\n" for one in rows))
    words = ["train", "--recipe", "smol", "--model", str(roomy_model), "--data", str(shown), "--plan"]
    settings = ["method=demonstrations", f"data.demonstrations={shown}", "data.heldout="]
    settings += ["data.max_prompt_tokens=", 'demonstrations.families=["general"]']
    words += [word for one in settings for word in ("--set", one)]
    planned = command(*words).output
    (held,) = re.findall(r" (\d+) demonstrated dialogues", planned)
    assert 0 < int(held) <= 10, "half of the rows have the family, and some are kept for validation"
    assert f" at most {held} samples " in planned


def test_families_choose_and_leave_out_rows(roomy_model: Path, tmp_path: Path) -> None:
    assert set(hold(ROWS, roomy_model, tmp_path / "chosen", families=("general",))) == {"general"}
    both = ("punctuation:no_comma", "change_case:english_lowercase")
    counted = {"pair", "list", "single", "false", "broken"}
    for name, data in (("left", {"without_families": ("general",)}), ("only", {"families": both})):
        assert set(hold(ROWS, roomy_model, tmp_path / name, data)) == counted
    with pytest.raises(ValueError, match="no rows are left to train on"):
        hold(ROWS, roomy_model, tmp_path / "one", {"families": both[:1]})


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 2], "Response B keeps 2 of 2.\n<preference>B</preference>"),
        ([1, 1], "It is a tie at 1 of 2.\n<preference>A</preference>"),
    ],
)
def test_ties_are_named(counts: list[int], expected: str) -> None:
    assert verdict_from_counts("preference", counts, 2) == expected


def test_stated_counts_name_every_response() -> None:
    assert counted_verdict("preference", [0, 3, 1], None) == (
        "Response A keeps 0. Response B keeps 3. Response C keeps 1.\n<preference>B</preference>"
    )


def test_scores_go_from_one_to_ten() -> None:
    assert [score_of(kept, 3) for kept in range(4)] == [1, 4, 7, 10]
