"""Every shipped recipe loads, has the values of its paper, and marks every line that the paper lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.model_families import tokenizer_of
from tests.rows import each_row
from tirjudge.generation.base import SamplingOptions
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.meta_judge import MetaJudgeConfig
from tirjudge.judging.options import JudgeOptions, NoSandbox
from tirjudge.models.resolve import read_note
from tirjudge_environments import ChatEncoder, JudgeTask, Message, open_environment
from tirjudge_training.corpora.config import SamplingConfig
from tirjudge_training.data.base import WITHOUT_TOOLS, open_judges
from tirjudge_training.data.own_rows import JUDGES
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.model_folder import _write_note, base_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load, shipped
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.run.context import note_of

OURS = re.compile(r"#\s*(ours|inferred)\b")
STRUCTURE = {"extends", "description", "run", "method"}

# TIR-Judge, sections 4.2, 4.3 and 5.1.
ZERO: dict[str, Any] = {
    "environments.tir-pointwise.name": "tir-pointwise",
    "environments.tir-pairwise.name": "tir-pairwise",
    "environments.tir-listwise.name": "tir-listwise",
    "model.enable_thinking": False,
    "rates.devices": 8,
    "rates.tasks.tir-pointwise": 12450,
    "rates.tasks.tir-pairwise": 12450,
    "rates.tasks.tir-listwise": 1461,
    "rl.epochs": 2,
    "rl.samples": 8,
    "rl.micro_batch": 4,
    "rl.groups": 128,
    "rl.learning_rate": 1e-6,
    "rl.loss": "dapo",
    "rl.epsilon": 0.2,
    "rl.epsilon_high": 0.3,
    "rl.beta": 0.01,
    "rl.filter": "correctness",
    "rl.max_tokens": 8192,
    "rl.tool_calls": 3,
    "rejection.samples": 4,
    "sft.epochs": 1,
    "sft.batch": 64,
    "sft.learning_rate": 2e-6,
    "sft.max_tokens": 8192,
    "iterate.rounds": 2,
    "data.validation": 0.05,
}
DISTILL = {key: value for key, value in ZERO.items() if not key.startswith(("rejection.", "iterate."))} | {
    "teacher.model": "gemini-2.5-flash",
    "teacher.kept": 10_000,
    "teacher.reward": 1.0,
    "teacher.tool_calls": 3,
    "teacher.max_tokens": 8192,
}
TIR_BASES = {"4b": "Qwen/Qwen3-4B-Instruct-2507", "8b": "Qwen/Qwen3-8B"}
# JudgeLRM, section 4.1 "Implementation Details", Eq. 6 and 7, footnote 2.
JUDGELRM: dict[str, Any] = {
    "data.max_prompt_tokens": 1024,
    "environments.judgelrm.name": "judgelrm-pair",
    "rl.epochs": 1,
    "rl.groups": 16,
    "rl.samples": 8,
    "rl.loss": "dapo",
    "rl.sigma": "population",
    "rl.eta": 1e-6,
    "rl.epsilon": 0.5,
    "rl.epsilon_high": 0.5,
    "rl.beta": 0.001,
    "rl.max_tokens": 2048,
    "rl.tool_calls": 0,
}
# J1, section 2.4 and Appendix B.
J1: dict[str, Any] = {
    "validation.select": True,
    "data.max_prompt_tokens": 4096,
    "environments.j1.name": "j1-pav",
    "rl.groups": 512,
    "rl.samples": 5,
    "rl.learning_rate": 1e-6,
    "rl.entropy_bonus": 0.0,
    "rl.temperature": 1.0,
    "rl.max_tokens": 4096,
    "rl.tool_calls": 0,
}
# RM-R1, Appendix A to C and E.
RM_R1: dict[str, Any] = {
    "data.max_prompt_tokens": 4096,
    "environments.rm-r1.name": "rm-r1",
    "rl.groups": 1024,
    "rl.optimizer_steps": 1024 // 128,
    "rl.samples": 7,
    "rl.loss": "per_response",
    "rl.epsilon": 0.2,
    "rl.epsilon_high": 0.2,
    "rl.beta": 1e-3,
    "rl.temperature": 1.0,
    "rl.max_tokens": 8192,
    "rl.tool_calls": 0,
}
DISTILLED = RM_R1 | {"environments.rm-r1.options.style": "reasoning"}
INSTRUCT = RM_R1 | {
    "environments.rm-r1.options.style": "instruct",
    "teacher.model": "claude-3-7-sonnet-20250219",
    "teacher.corrector.model": "o3",
    "data.reserved": 8700,
    "teacher.tool_calls": 0,
    "sft.epochs": 1,
    "sft.batch": 128,
    "sft.micro_batch": 1,
}
# The rationale judge, Eq. 4, section 4.2 and Appendix D.1.
RATIONALE: dict[str, Any] = {
    "data.max_prompt_tokens": 8 * 1024,
    "environments.rationale.name": "rationale",
    "meta_judge.model": "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "rl.epochs": 2,
    "rl.groups": 256,
    "rl.optimizer_steps": 256 // 128,
    "rl.samples": 8,
    "rl.learning_rate": 2e-6,
    "rl.epsilon": 2e-4,
    "rl.epsilon_high": 2e-4,
    "rl.max_tokens": 12 * 1024,
    "rl.tool_calls": 0,
}
PRINTED: dict[str, dict[str, Any]] = {
    **{f"tir-judge-zero-{size}": ZERO | {"model.base": base} for size, base in TIR_BASES.items()},
    **{f"tir-judge-distill-{size}": DISTILL | {"model.base": base} for size, base in TIR_BASES.items()},
    "judgelrm-3b": JUDGELRM | {"model.base": "Qwen/Qwen2.5-3B-Instruct", "rl.learning_rate": 3e-7},
    "judgelrm-4b": JUDGELRM | {"model.base": "Qwen/Qwen3-4B", "rl.learning_rate": 3e-7},
    "judgelrm-7b": JUDGELRM | {"model.base": "Qwen/Qwen2.5-7B-Instruct", "rl.learning_rate": 1e-6},
    "judgelrm-8b": JUDGELRM | {"model.base": "Qwen/Qwen3-8B", "rl.learning_rate": 1e-6},
    "judgelrm-14b": JUDGELRM | {"model.base": "Qwen/Qwen2.5-14B-Instruct", "rl.learning_rate": 1e-6},
    "j1-8b": J1 | {"model.base": "meta-llama/Llama-3.1-8B-Instruct", "rl.beta": 0.01},
    "j1-70b": J1
    | {"model.base": "meta-llama/Llama-3.3-70B-Instruct", "rl.beta": 0.0, "rl.final_learning_rate": 3e-7},
    **{
        f"rm-r1-distilled-{size}b": DISTILLED
        | {"model.base": f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{size}B", "rl.learning_rate": rate}
        for size, rate in ((7, 1e-6), (14, 1e-6), (32, 8e-7))
    },
    **{
        f"rm-r1-instruct-{size}b": INSTRUCT
        | {"model.base": f"Qwen/Qwen2.5-{size}B-Instruct", "sft.learning_rate": sft, "rl.learning_rate": rl}
        for size, sft, rl in ((7, 5e-6, 1e-6), (14, 3e-6, 7e-7), (32, 2e-6, 5e-7))
    },
    "rationale-14b": RATIONALE | {"model.base": "Qwen/Qwen3-14B"},
    "rationale-30b-a3b": RATIONALE | {"model.base": "Qwen/Qwen3-30B-A3B"},
}
ABLATIONS = sorted(name for name in shipped() if name.startswith("ablations/"))


def value(recipe: Recipe, path: str) -> Any:
    found: Any = recipe.model_dump()
    for key in path.split("."):
        found = found[key]
    return found


def lines(name: str) -> Iterator[tuple[str, str]]:
    """Yield (key with its tables, line) for every line that sets a key of a recipe, or of an ablation."""
    table, own = "", name.replace("/", ".", 1) if name in ABLATIONS else ""
    for line in shipped()[name].read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            table = line.strip("[]") + "."
        elif line and not line.startswith("#"):
            key, ablation = table + line.split(" = ")[0], table.startswith("ablations.")
            if ablation == bool(own) and key.startswith(f"{own}." if own else ""):
                yield key.removeprefix(f"{own}."), line


@each_row("name", PRINTED)
def test_a_recipe_has_the_values_of_its_paper(name: str) -> None:
    recipe = load(Recipe, name)
    assert {path: value(recipe, path) for path in PRINTED[name]} == PRINTED[name]


@each_row("name", PRINTED)
def test_a_line_that_the_paper_does_not_print_is_marked(name: str) -> None:
    for path, line in lines(name):
        if path not in STRUCTURE:
            assert bool(OURS.search(line)) != (path in PRINTED[name]), line


TIR = [name for name in PRINTED if name.startswith("tir-judge")]
REASON = re.compile(r"# (ours|inferred): \S")
STATED = {
    "data.max_prompt_tokens",
    "rl.optimizer_steps",
    "rl.temperature",
    "rl.replacement_rounds",
    "rl.importance_cap",
    *(f"environments.tir-{kind}.options.bindings" for kind in ("pointwise", "pairwise", "listwise")),
}
"""Values that the paper lacks and that change what is learned: a reader finds them in the file."""


@each_row("name", TIR)
def test_tir_judge_s_recipes_give_a_reason_for_every_value_of_ours(name: str) -> None:
    written = dict(lines(name))
    for parent in ("tir-judge-zero-8b", "tir-judge-distill-8b"):  # What `extends` adds.
        written |= dict(lines(parent)) if "distill" in name or "zero" in parent else {}
    assert written.keys() >= STATED
    for path, line in written.items():
        assert path in PRINTED[name] or path in STRUCTURE or REASON.search(line), line


@each_row("name", TIR)
def test_a_row_of_tir_judge_leaves_room_for_its_dialogue_in_sft(name: str) -> None:
    """A longer prompt could never be in the SFT context of 8,192 tokens (section 5.1)."""
    recipe = load(Recipe, name)
    assert recipe.data.max_prompt_tokens is not None
    assert recipe.data.max_prompt_tokens < recipe.sft.max_tokens


@each_row("name", [*PRINTED, *ABLATIONS])
def test_the_recipes_of_papers_are_marked_as_never_run(name: str) -> None:
    recipe = load(Recipe, name)
    assert recipe.run == "never"
    for judge in recipe.environments.values():
        open_environment(judge.name, **judge.options)


def test_every_shipped_recipe_is_checked() -> None:
    assert set(shipped()) == {"adapt", "smol", *PRINTED, *ABLATIONS}


@each_row("name", ABLATIONS)
def test_an_ablation_changes_only_what_it_says(name: str) -> None:
    changed = {path for path, _ in lines(name)} - STRUCTURE
    if "model.base" in changed:  # Another model has a thinking mode of its own: one change, not two.
        changed.discard("model.enable_thinking")
    assert shipped()[name].stem in PRINTED
    assert 1 <= len(changed) <= 4
    found, base = (load(Recipe, one).model_dump() for one in (name, shipped()[name].stem))
    assert {key.partition(".")[0] for key in changed} <= {key for key in found if found[key] != base[key]}
    papers = ("JudgeLRM ", "J1 ", "RM-R1 ", "The rationale judge", "Ours: ")
    assert found["description"].startswith(papers)


def test_an_ablation_is_extended_like_any_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "ablations/j1-8b-consistency"\nseed = 7\n')
    recipe = load(Recipe, str(tmp_path / "mine.toml"))
    assert (recipe.seed, recipe.environments["j1"].options) == (7, {"consistency": True})
    # Its parent's ablations are the parent's alone, and a user's file cannot hide any.
    assert load(Recipe, "j1-70b").environments["j1"].options == {}
    (tmp_path / "mine.toml").write_text('extends = "j1-8b"\n[ablations.x]\nseed = 7\n')
    with pytest.raises(BadRecipe, match="unknown key 'ablations'"):
        load(Recipe, str(tmp_path / "mine.toml"))


BASES = {
    "Qwen/Qwen2.5-": "qwen2_5",
    "runs/rm-r1-instruct-": "qwen2_5",
    "Qwen/Qwen3-4B-Instruct-2507": "qwen3_instruct_2507",
    "Qwen/Qwen3-": "qwen3",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-": "deepseek_r1_distill",
    "meta-llama/Llama-3": "llama3_1",
}
"""The template of a base model, by the prefix of its name."""
STARTS = {
    ("qwen2_5", ""): "<|im_start|>assistant\n",
    ("qwen2_5", "<think>"): "<|im_start|>assistant\n<think>",
    ("qwen3_instruct_2507", ""): "<|im_start|>assistant\n",
    ("qwen3", "<think>"): "<|im_start|>assistant\n<think>",
    ("deepseek_r1_distill", ""): "<｜Assistant｜><think>\n",
    ("llama3_1", ""): "<|start_header_id|>assistant<|end_header_id|>\n\n",
}
"""The start of a judge's turn by template and prefill; Qwen3's depends on the recipe."""


@each_row("name", shipped())
def test_every_recipe_states_its_thinking_mode(name: str) -> None:
    recipe = load(Recipe, name)
    thinks = ("rationale", "rm-r1-distilled", "judgelrm-4b", "judgelrm-8b")
    assert recipe.model.enable_thinking is name.removeprefix("ablations/").startswith(thinks)


@each_row("name", [*PRINTED, *ABLATIONS])
def test_the_judge_s_turn_begins_as_its_model_family_begins_it(name: str) -> None:
    recipe = load(Recipe, name)
    family = next(family for prefix, family in BASES.items() if recipe.model.base.startswith(prefix))
    tokenizer = tokenizer_of(family)
    encoder = ChatEncoder(tokenizer, enable_thinking=recipe.model.enable_thinking)
    for judge in recipe.environments.values():
        environment = open_environment(judge.name, **judge.options)
        size = {"tir-pointwise": 1, "tir-listwise": 3}.get(judge.name, 2)
        task = JudgeTask(id="t", prompt=(Message("user", "q"),), candidates=("x", "y", "z")[:size], label=0)
        prompt = environment.prompt(task, environment.views(task)[0])
        start = STARTS.get((family, prompt.prefill)) or (
            "<|im_start|>assistant\n" + "<think>\n\n</think>\n\n" * (not recipe.model.enable_thinking)
        )
        assert tokenizer.decode(encoder.prompt(prompt)).endswith(start)


def test_a_model_below_the_home_folder_is_found_with_its_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter's folder would otherwise be taken for a full model, and trained under other prompts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()
    config = {"base_model_name_or_path": "owner/base", "r": 4}
    (tmp_path / "mine" / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "mine" / "tirjudge.json").write_text('{"prompts": "smol"}')
    start = load(Recipe, "smol", ["model.base=~/mine"]).model.start
    assert base_of(Path(start)) == "owner/base"
    assert read_note(start).prompts == "smol"


def test_models_of_papers_are_sampled_from_with_vllm() -> None:
    """Sampling with transformers takes a whole float32 copy on each GPU under FSDP2: 122 GiB for 32B."""
    found = {name: Recipe.load(name) for name in shipped()}
    never_run = {name: recipe.rl.generator for name, recipe in found.items() if recipe.run == "never"}
    assert len(never_run) > 40
    assert set(never_run.values()) == {"vllm"}


@pytest.mark.parametrize("name", shipped())
async def test_judging_builds_the_prompts_of_the_training(name: str, tmp_path: Path) -> None:
    """For every judge and every domain of a recipe, with nothing but the note of the trained model."""
    recipe = Recipe.load(name)
    trained = open_judges(recipe.environments or JUDGES, recipe.data.no_tools)[1]
    note = note_of(recipe, SimpleNamespace(environments=trained))
    _write_note(tmp_path, str(tmp_path / "base"), note)
    domains = {"", "math", "code", "helpfulness", "safety"}
    compared = 0
    for judge, environment in trained.items():
        config = (recipe.environments or JUDGES)[judge.removesuffix(WITHOUT_TOOLS)]
        tools = {"tools": False} if judge.endswith(WITHOUT_TOOLS) else {}
        options = JudgeOptions(
            model="m", base_url="http://127.0.0.1:9", note_of=str(tmp_path), format=config.name, **tools
        )
        async with JudgeEngine(options, sandbox=NoSandbox()) as engine:
            for domain in domains:
                count = {"tir-listwise": 3, "tir-pointwise": 1, "judgelrm-single": 1}.get(config.name, 2)
                responses = tuple(f"Response {n}. " * 50 for n in range(count))
                task = JudgeTask(
                    id="id", prompt=(Message("user", "Ask."),), candidates=responses, domain=domain
                )
                view = environment.views(task)[0]
                judging = engine.rollout(config.name).environment
                assert judging.prompt(task, view) == environment.prompt(task, view), (judge, domain)
                compared += 1
    assert compared >= len(domains)


def test_every_sampler_of_a_recipe_takes_every_parameter() -> None:
    samplers = (RlConfig, TeacherConfig, MetaJudgeConfig, SamplingConfig)
    wanted = SamplingOptions.model_fields.keys()
    assert [one for one in samplers if not wanted <= one.model_fields.keys()] == []


def test_rl_weights_samples_of_a_truncated_distribution() -> None:
    with pytest.raises(BadRecipe, match=r"rl: top_p samples from another distribution .* importance_cap"):
        Recipe.load("tir-judge-zero-4b", ["rl.top_p=0.9", "rl.importance_cap="])
    rl = Recipe.load("tir-judge-zero-4b", ["rl.top_p=0.9", "rl.importance_cap=2.0"]).rl
    assert (rl.sampling.top_p, rl.sampling.temperature) == (0.9, 1.0)
