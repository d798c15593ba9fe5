"""`--plan` prints the numbers of an independent computation and starts nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.command import tirjudge
from tests.docs.blocks import ROOT
from tests.loopback import served
from tests.tirjudge.judge_command import command
from tests.tirjudge.smollm2 import needs_smollm2, use_converted, wheel_file
from tests.training.miniature import MINI, assignments
from tirjudge.console_text import span
from tirjudge_training.methods import pipeline_of
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.recipe import ModelConfig, Recipe
from tirjudge_training.recipe_file import load, shipped
from tirjudge_training.run import model_size, preflight
from tirjudge_training.run.context import data_of
from tirjudge_training.run.plan import NoRows, plan
from tirjudge_training.run.preflight import TooSmall, disk_bytes
from tirjudge_training.weight_sync.base import Sampler


def lines(recipe: Recipe, folder: Path) -> list[str]:
    data = data_of(recipe) if recipe.data.train.exists() else NoRows()
    return list(plan(recipe, pipeline_of(recipe), data, folder))


def table(found: list[str]) -> dict[str, list[str]]:
    """Return the cells of each stage's line."""
    stages = found[found.index("") + 1 :]
    stages = stages[: stages.index("")]
    return {line.split()[0]: re.split(r"\s{2,}", line) for line in stages}


def test_the_plan_lists_every_stage_with_its_size(tmp_path: Path) -> None:
    words = ("method=iterative", "rl.steps=10", "rl.groups=4", "rl.replacement_rounds=3")
    recipe = load(Recipe, MINI, [*assignments(), *words])
    recipe = recipe.model_copy(update={"iterate": recipe.iterate.model_copy(update={"steps": None})})
    found = table(lines(recipe, tmp_path))
    assert list(found)[1:-1] == [stage.name for stage in pipeline_of(recipe).stages]
    assert found["rl-1"][1:4] == ["10 batches of 4 x 8", "320 to 1,280", "320"]
    assert found["heldout-base"][2] == "8", "two pairs, two lists and two singles of two views"
    assert list(tmp_path.iterdir()) == [], "a plan must write nothing"


QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
"""A published config.json."""
PARAMETERS = 8_190_735_360


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration and without weights."""
    folder = tmp_path_factory.mktemp("qwen")
    (folder / "config.json").write_text(json.dumps(QWEN3_8B))
    return folder


def planned(name: str, *assignments: object) -> str:
    words = [word for one in assignments for word in ("--set", str(one))]
    result = command("train", "--recipe", name, "--plan", *words, code=0)
    return result.output


@pytest.mark.slow
def test_a_plan_of_the_papers_8b_before_its_rows_exist(qwen: Path) -> None:
    """Steps by hand: two passes over 95 % of the rows, pointwise ones in two views, in 128 slots a batch.

    Weights, gradients and moments are sharded over eight devices with the KL reference in bfloat16.
    """
    found = planned("tir-judge-zero-8b", f"model.base={qwen}", f"data.train={qwen}/none")
    assert "none does not exist: counted with 26,361 rows ([rates.tasks])" in found
    trained = 12450 - round(0.05 * 12450), 1461 - round(0.05 * 1461)
    slots = 3 * trained[0] + trained[1]
    batches = -(-2 * slots // 128)
    rows = batches * 128 * 8
    line = rf"rl-[012] +at most {batches} batches of 128 x 8 +{rows:,} +{rows // 3:,} to {rows:,} "
    assert len(re.findall(line, found)) == 3, "replacements use up the rows of the two epochs"
    assert f"{2 * trained[0] + trained[1]:,} prompts x 4" in found
    assert f"memory of each of 8 devices: at least {18 * PARAMETERS / 8 / 2**30:.1f} GiB" in found
    assert re.search(r"^total +unknown$", found, re.MULTILINE), "the recipe states no speeds"


def test_sampling_and_measuring_are_divided_by_the_devices(qwen: Path) -> None:
    """Four rollouts of 600 tokens for each view of 38 of 40 rows, at 10 tokens a second and device."""
    few = [f"rates.tasks.tir-{kind}=40" for kind in ("pointwise", "pairwise", "listwise")]
    speeds = ("rates.sampled_per_second=10", "rates.trained_per_second=10")
    seconds = 4 * 600 / 10 * (2 * 38 + 38 + 38)
    for devices in (8, 1):
        words = (f"model.base={qwen}", f"data.train={qwen}/none", *few, *speeds, f"rates.devices={devices}")
        found = table(planned("tir-judge-zero-8b", *words).splitlines())
        assert found["rejection-1"][-1] == span(*[seconds / devices] * 2)
        assert found["total"][-1].startswith("at least "), "the time of a selection is unknown"


def test_a_plan_needs_neither_rows_nor_a_model(tmp_path: Path) -> None:
    missing = tmp_path / "rows.jsonl"
    recipe = load(Recipe, "j1-8b", [f"data.train={missing}", f"model.base={tmp_path}", "rl.epochs=2"])
    found = lines(recipe, tmp_path / "run")
    assert "whose config.json is not available" in found[0]
    assert found[1] == f"{missing} does not exist: stages that go through its rows are not counted"
    assert table(found)["rl"][1] == "2 epochs in batches of 512 x 5"


TOTAL_SIZE = {
    "Qwen/Qwen2.5-3B-Instruct": 6_171_877_376,
    "Qwen/Qwen2.5-7B-Instruct": 15_231_233_024,
    "Qwen/Qwen2.5-14B-Instruct": 29_540_067_328,
    "Qwen/Qwen2.5-32B-Instruct": 65_527_752_704,
    "Qwen/Qwen3-4B": 8_044_936_192,
    "Qwen/Qwen3-4B-Instruct-2507": 8_044_936_192,
    "Qwen/Qwen3-8B": 16_381_470_720,
    "Qwen/Qwen3-14B": 29_536_614_400,
    "Qwen/Qwen3-30B-A3B": 61_064_245_248,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": 15_231_233_024,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": 29_540_067_328,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": 65_527_752_704,
    "meta-llama/Llama-3.1-8B-Instruct": 16_060_522_496,
    "meta-llama/Llama-3.3-70B-Instruct": 141_107_412_992,
}
"""Bytes of the weights in bfloat16: `metadata.total_size` of each model's `model.safetensors.index.json` on
the hub. The distilled models have the shapes of the Qwen2.5 models that they were trained from."""


@pytest.mark.parametrize("base", TOTAL_SIZE)
def test_a_plan_knows_the_size_of_a_recipe_s_model_that_is_not_here(base: str) -> None:
    assert 2 * model_size.shape(base, planned=True).parameters == TOTAL_SIZE[base]


def test_a_plan_of_an_unknown_model_is_refused() -> None:
    with pytest.raises((OSError, ValueError)):
        model_size.shape("owner/unknown", planned=True)


@pytest.mark.slow
def test_a_model_that_is_nowhere_is_looked_for_once(tmp_path: Path) -> None:
    asked = []

    async def handle(request: Request) -> Response:
        asked.append(request.url.path)
        return Response("the hub is down", 503)

    words = ("train", "--recipe", "smol", "--model", "owner/none", "--output", str(tmp_path / "run"))
    with served(Route("/{path:path}", handle, methods=["GET", "HEAD"])) as url:
        run = tirjudge(*words, folder=tmp_path, HF_ENDPOINT=url, HF_HOME=str(tmp_path / "hub"))
    assert run.returncode == 2
    assert run.stderr.startswith("tirjudge train: no model 'owner/none', neither a folder with one nor ")
    assert run.stderr.count("\n") == 1
    assert [path for path in asked if "owner/none" in path] == ["/api/models/owner/none/revision/main"]


def test_every_shipped_recipe_is_planned_without_the_hub() -> None:
    published = json.loads(model_size.SHAPES.read_text())
    bases = {load(Recipe, name).model.base for name in shipped()}
    assert {base for base in bases if "/" in base and not base.startswith("runs/")} == published.keys()
    assert published.keys() == TOTAL_SIZE.keys()


@pytest.mark.parametrize(
    ("shared_by", "precision", "sampler", "off_policy", "bytes_a_parameter"),
    [
        ("", "no", "transformers", False, 16 + 4),
        ("", "no", "transformers", True, 16 + 4 + 4),
        ("", "no", "vllm", True, 16 + 4),
        ("FSDP", "no", "transformers", False, (16 + 4) / 8 + 4),
        ("FSDP", "bf16", "transformers", False, (16 + 2) / 8 + 4),
        ("FSDP", "bf16", "vllm", False, (16 + 2) / 8),
        ("FSDP", "bf16", "vllm-server", False, (16 + 2) / 8),
    ],
)
def test_the_least_memory_of_a_launched_process(
    shared_by: str,
    precision: str,
    sampler: Sampler,
    off_policy: bool,
    bytes_a_parameter: float,
    qwen: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weight, gradient, two moments and the KL reference, sharded over eight except for full copies."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", str(shared_by == "FSDP").lower())
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", precision)
    monkeypatch.setenv("WORLD_SIZE", "8")
    shape = model_size.shape(str(qwen))
    found = model_size.launched_bytes(shape, reference=True, sampler=sampler, off_policy=off_policy)
    assert found == PARAMETERS * bytes_a_parameter


@pytest.mark.parametrize(
    ("keys", "beside"),
    [
        ({}, None),  # awake all the time: 16 + 4 bytes a parameter, beside nine tenths of the GPU
        ({"rl.vllm.enable_sleep_mode": "true"}, 16),
        ({"rl.vllm.enable_sleep_mode": "true", "rl.offload_moments": "true"}, 8),
    ],
)
def test_the_engine_of_the_same_process_is_counted(
    keys: dict[str, str], beside: int | None, qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it samples there are weights, moments and the reference, but no gradients."""
    share = 0.7
    words = [
        f"model.base={qwen}",
        "rl.beta=0.01",
        "rl.generator=vllm",
        f"rl.vllm.gpu_memory_utilization={share}",
    ]
    recipe = load(Recipe, MINI, [*assignments(), *words, *(f"{key}={value}" for key, value in keys.items())])
    pipeline = pipeline_of(recipe)
    assert any(stage.reference for stage in pipeline.stages)
    state = PARAMETERS * (beside or 20)
    line = lines(recipe, tmp_path)[-1]
    assert f"at least {20 * PARAMETERS / 2**30:,.1f} GiB" in line
    told = (
        f"At least {state / 2**30:,.1f} GiB while batches are sampled, beside"
        if beside
        else ", and all the time"
    )
    assert f"{told} vLLM's engine, which takes 70% of the device" in line

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(preflight, "available_disk", lambda folder: 10**15)
    monkeypatch.setattr(preflight, "free_bytes", lambda parent: 10**15)
    least = round(state / (1 - share))
    for whole, fits in ((least + 10**6, True), (least - 10**6, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda whole=whole: (whole, whole))
        if fits:
            preflight._check_space(recipe, pipeline, str(qwen), tmp_path)
            continue
        with pytest.raises(TooSmall) as refused:
            preflight._check_space(recipe, pipeline, str(qwen), tmp_path)
        assert "rl.vllm.gpu_memory_utilization = 0.69 or less, or " in str(refused.value)
        next_step = {None: "enable_sleep_mode = true", 16: "offload_moments = true", 8: "more GPUs"}[beside]
        assert next_step in str(refused.value)


@pytest.mark.slow
@needs_smollm2
def test_the_plan_bounds_the_memory_of_the_published_runs_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curves of `gib/process` of RL with `smol` in the documentation: at most 10.1 GiB."""
    use_converted(tmp_path / "cache", monkeypatch)
    pages = [path.read_text() for path in (ROOT / "docs" / "smol").glob("rl-*.svg")]
    peaks = [float(one) for page in pages for one in re.findall(r"memory, GiB.*?end\">([\d.]+)<", page)]
    assert max(peaks) == 10.1
    recipe = load(Recipe, "smol", [])
    (line,) = [one for one in lines(recipe, tmp_path) if one.startswith("memory on this CPU: at most ")]
    stated, *parts = map(float, re.findall(r"([\d.]+) GiB", line))
    assert max(peaks) < stated < 2 * max(peaks)
    assert sum(parts) == pytest.approx(stated, abs=0.15)
    assert line.endswith("in rl: 8 rows of up to 592 tokens, rl.micro_batch = 8"), "400 + 192 tokens"

    free = 6 * 2**30
    monkeypatch.setattr(preflight, "available_memory", lambda: (free, "free in memory"))
    pipeline = pipeline_of(recipe)
    said: list[str] = []
    preflight._check_space(recipe, pipeline, recipe.model.base, tmp_path, said.append)
    (warning,) = said
    assert re.match(r"warning: training may take up to 13.* GiB, and 6.0 GiB are free in memory: ", warning)
    advice = warning.rpartition("--set ")[2]
    assert advice == "rl.micro_batch=2"
    smaller = load(Recipe, "smol", [advice])
    preflight._check_space(smaller, pipeline_of(smaller), recipe.model.base, tmp_path, said.append)
    assert said == [warning]


def test_attention_scores_are_counted_where_they_are_kept(qwen: Path) -> None:
    """Eager attention keeps the scores of 32 heads in each of 36 layers, in float32."""
    models = [ModelConfig(base=str(qwen), attn_implementation=one) for one in ("eager", "sdpa")]
    eager, sdpa = (model_size.activation_bytes(model, 64) or 0 for model in models)
    assert eager - sdpa == 36 * 32 * 64 * 64 * 4


@pytest.mark.slow
def test_only_the_adapter_is_trained_with_lora(qwen: Path) -> None:
    """36 layers of seven matrices, rank * (in + out) each: 4,096 wide, keys and values 1,024, MLPs 12,288."""
    adapter = 36 * 64 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12288))
    found = model_size.shape(str(qwen), LoraConfig(rank=64))
    assert (found.parameters, found.trained) == (PARAMETERS, adapter)
    assert model_size.launched_bytes(found, reference=True) == 4 * PARAMETERS + 16 * adapter


def test_frozen_weights_in_bfloat16_take_half_the_memory() -> None:
    found = model_size.Shape(PARAMETERS, 0, adapter=1000, weight=2)
    assert model_size.launched_bytes(found, reference=True) == 2 * PARAMETERS + 16 * 1000
    copied = model_size.launched_bytes(found, reference=True, off_policy=True)
    assert copied == 4 * PARAMETERS + 16 * 1000, "a second copy samples"


def test_an_adapter_alone_takes_little_of_the_disk() -> None:
    """Two checkpoints of the warm-up, four of RL and one more for a while; three models, in bfloat16."""
    shape = model_size.Shape(10**9, 0, adapter=10**6)
    for merge, model in ((False, 2 * 10**6), (True, 4 * 10**9)):
        recipe = load(Recipe, "smol", [f"model.lora.merge={str(merge).lower()}"])
        written = disk_bytes(pipeline_of(recipe), shape, recipe.model.lora)
        snapshots = 2 * 2 * 10**9 if merge else 0
        assert written == 7 * 12 * 10**6 + 3 * model + snapshots


@needs_smollm2
def test_the_shape_of_a_gguf_file_is_that_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes are those that SmolLM2-135M's `config.json` on the hub gives."""
    use_converted(tmp_path, monkeypatch)
    hidden, keys, mlp, layers, words = 576, 192, 1536, 30, 49152
    layer = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * mlp + 2 * hidden
    assert model_size.trained_shape(str(wheel_file()), None).parameters == (
        words * hidden + layers * layer + hidden
    )
