"""`--plan` prints the numbers of an independent computation and starts nothing."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tirjudge.cli import app
from tirjudge.console_text import span
from tirjudge_training.config_files import load
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.planning import memory
from tirjudge_training.planning.plan import NoRows, plan
from tirjudge_training.policies.base import Sampler
from tirjudge_training.recipe import Rates, Recipe
from tirjudge_training.run import data_of, pipeline_of
from tirjudge_training.stages.base import Size


def lines(recipe: Recipe, folder: Path) -> list[str]:
    data = data_of(recipe) if recipe.generated else NoRows()
    return list(plan(recipe, pipeline_of(recipe), data, folder))


def table(found: list[str]) -> dict[str, list[str]]:
    """Return the cells of each stage's line."""
    stages = found[found.index("") + 1 :]
    stages = stages[: stages.index("")]
    return {line.split()[0]: re.split(r"\s{2,}", line) for line in stages}


def test_the_plan_lists_every_stage_with_its_size(tmp_path: Path) -> None:
    recipe = load(
        Recipe, "mini", ["method=iterative", "rl.steps=10", "rl.groups=4", "rl.replacement_rounds=3"]
    )
    recipe = recipe.model_copy(update={"iterate": recipe.iterate.model_copy(update={"steps": None})})
    found = table(lines(recipe, tmp_path))
    assert list(found)[1:-1] == [stage.name for stage in pipeline_of(recipe).stages]
    assert found["warmup"][1:3] == ["48,000 generated samples", "48,000"]
    assert found["rl-1"][1:4] == ["10 batches of 4 x 8", "320 to 1,280", "320"]
    assert found["heldout-base"][2] == "2,000", "500 pairs, 500 lists and 500 singles of two views"
    assert list(tmp_path.iterdir()) == [], "a plan must write nothing"


def test_finished_stages_cost_nothing(tmp_path: Path) -> None:
    recipe = load(Recipe, "mini")
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "done.json").write_text("{}")
    found = table(lines(recipe, tmp_path))
    assert found["warmup"][-1] == "done"
    assert found["rl"][-1] != "done"


def test_seconds_are_tokens_over_rates() -> None:
    rates = Rates(
        devices=2, prompt_tokens=100, response_tokens=50, sampled_per_second=10, trained_per_second=30
    )
    size = Size("", sampled=40, resampled=80, trained=20, compared=20)
    # 40 x 50 / 10 sampled, 20 x 150 / 30 trained, a quarter of that for the reference's forward pass
    assert rates.seconds(size, 1) == ((200 + 100 + 25) / 2, (600 + 100 + 25) / 2)
    assert rates.seconds(size, 1, alone=True) == (200 + 100 + 25, 600 + 100 + 25)


def test_rates_follow_from_the_devices_peak_by_default() -> None:
    """8.2 B parameters on an H100: sampling has 10 % of 989 TFLOP/s, training 40 %.

    Sampling takes 2 operations per parameter and token, training 8.
    """
    assert Rates().sampled(8_200_000_000) == pytest.approx(6030, abs=1)
    assert Rates().trained(8_200_000_000) == pytest.approx(6030, abs=1)


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
"""A folder with the published config.json and no weights."""
GIB = 2**30


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    (folder / "config.json").write_text(json.dumps(QWEN3_8B))
    return folder


@cache
def planned(name: str, *assignments: object) -> str:
    words = [word for one in assignments for word in ("--set", str(one))]
    result = CliRunner().invoke(app, ["train", "--recipe", name, "--plan", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_plan_of_the_papers_8b_before_its_rows_exist(qwen: Path) -> None:
    """Steps by hand: two passes over 95 % of the rows, pointwise ones in two views, in 128 slots a batch."""
    found = planned("tir-judge-zero-8b", f"model.base={qwen}", f"data.train={qwen}/none")
    assert "none does not exist: counted with 26,361 rows ([rates.tasks])" in found
    trained = 12450 - round(0.05 * 12450), 1461 - round(0.05 * 1461)
    slots = 3 * trained[0] + trained[1]
    batches = -(-2 * slots // 128)
    rows = batches * 128 * 8
    line = rf"rl-[012] +at most {batches} batches of 128 x 8 +{rows:,} +{rows // 3:,} to {rows:,} "
    assert len(re.findall(line, found)) == 3, "replacements use up the rows of the two epochs"
    assert f"{2 * trained[0] + trained[1]:,} prompts x 4" in found


FEW = tuple(f"rates.tasks.tir-{kind}=40" for kind in ("pointwise", "pairwise", "listwise"))
"""Fewer rows, which are faster to count; memory does not depend on their number."""


def test_the_plan_lists_the_memory_of_a_device_by_phase(qwen: Path) -> None:
    """8.19 B parameters sharded over eight; four rows of 4,096 + 8,192 tokens, and 0.7 of 80 GB for vLLM.

    vLLM sleeps while the trainer works, so that its memory is needed only while it samples.
    `test_memory.py` compares these parts with allocations.
    """
    words = (f"model.base={qwen}", f"data.train={qwen}/none", *FEW)
    found = planned("tir-judge-zero-8b", *words)
    parameters, tokens, root = 8_190_735_360, 4 * (4096 + 8192), 2 * 151936 * 4096 + 4096
    for part, size in {
        "weights, float32, sharded": 4 * parameters / 8,
        "Adam's moments, float32, sharded": 8 * parameters / 8,
        "KL reference, bfloat16, sharded": 2 * parameters / 8,
        "vLLM's engine (gpu_memory_utilization)": 0.7 * 80e9,
        "output layer, one tile of logits": 4096 * 32768 * 2 + 4 * 8192 * 4096 * 2,
        "gradients, float32, sharded": 4 * parameters / 8,
        "embedding and output layer gathered, bfloat16": 2 * root,
        "activations kept between layers": 2 * tokens * 4096 * 36,
    }.items():
        assert re.search(rf"{re.escape(part)} +{size / GIB:,.1f} GiB", found), part
    assert re.search(r"  logits +", found) is None, "TRL's output layer never holds the logits of a batch"
    room = 0.7 * 80e9 - 2 * parameters
    cached = f"at most {room / GIB:,.1f} GiB of KV cache for {int(room) // (2 * 2 * 36 * 8 * 128):,} tokens"
    assert f"vLLM: 15.3 GiB of weights and {cached}" in found
    held = 14 * parameters / 8
    most = f"most at once {(held + 0.7 * 80e9) / GIB:,.1f} GiB, while sampling, of 74.5 GiB: fits"
    assert most in found, "weights, moments and reference stay where they are while vLLM samples"
    assert found.index("  sampling\n") < found.index("vLLM's engine") < found.index("  scoring without")
    awake = planned("tir-judge-zero-8b", *words, "rl.vllm.enable_sleep_mode=false")
    assert awake.index("vLLM's engine") < awake.index("  scoring without")
    assert "while training, of 74.5 GiB: does not fit" in awake
    full = planned("tir-judge-zero-8b", *words, "rl.vllm.gpu_memory_utilization=0.9")
    assert "while sampling, of 74.5 GiB: does not fit" in full
    none = planned("tir-judge-zero-8b", *words, "rl.vllm.gpu_memory_utilization=0.1")
    assert "vLLM cannot start: its weights take 15.3 GiB of the 7.5 GiB that it may use" in none


def test_sampling_and_measuring_are_divided_by_the_devices(qwen: Path) -> None:
    """Four rollouts of 600 tokens for each view of 38 of 40 rows, at 10 tokens a second and device."""
    words = (f"model.base={qwen}", f"data.train={qwen}/none", *FEW, "rates.sampled_per_second=10")
    seconds = 4 * 600 / 10 * (2 * 38 + 38 + 38)
    for devices in (8, 1):
        found = planned("tir-judge-zero-8b", *words, f"rates.devices={devices}")
        assert table(found.splitlines())["rejection-1"][-1] == span(*[seconds / devices] * 2)
        assert "of one device" not in found


def test_one_batch_is_worked_out_from_stated_rates(qwen: Path) -> None:
    """8.19 B parameters: 6,037 tokens a second and device; 2 bytes to vLLM and 12 to the disk per parameter.

    1,024 rollouts of 600 tokens are sampled; with 1,500 tokens of prompt they pass the reference and the
    importance weights, a quarter of training each, and training. Checkpoints are written meanwhile.
    """
    words = ("tir-judge-zero-8b", f"model.base={qwen}", f"data.train={qwen}/none")
    found = planned(*words)
    parameters, rate = 8_190_735_360, 8 * 98.9e12 / 2 / 8_190_735_360
    training = 1024 * 2100 / rate
    parts = {
        "generation +614,400 tokens": 1024 * 600 / rate,
        "weight sync +16.4 GB": 2 * parameters / 1e9,
        "forward only +4,300,800 tokens": 2 * training / 4,
        "forward, backward +2,150,400 tokens": training,
        "checkpoint +every 10 batches, in the background": 0,
        "total": (total := sum((1024 * 600 / rate, 2 * parameters / 1e9, 1.5 * training))),
    }
    for part, seconds in parts.items():
        assert re.search(rf"^  {part} +{seconds:,.1f} s$", found, re.MULTILINE), part
    assert f"1,731 batches take {1731 * parts['total'] / 3600:,.1f} h; TIR Table 8 has 23.0 h of RL" in found
    slow = 12 * parameters / 1e7 * (577 // 10) / 577 - total
    waits = rf"^  checkpoint +every 10 batches, in the background +{slow:,.1f} s$"
    assert re.search(waits, planned(*words, "rates.disk=1e7"), re.MULTILINE)


def test_what_the_rates_cannot_tell_is_called_unknown(qwen: Path) -> None:
    """A teacher answers at its own speed, and a recipe without rows has no sizes."""
    words = (f"model.base={qwen}", f"data.train={qwen}/none", *FEW)
    found = planned("tir-judge-distill-8b", *words)
    assert table(found.splitlines())["teacher"][-1] == "unknown"
    assert "unknown: how long the teacher takes" in found
    assert re.search(r"^total +at least ", found, re.MULTILINE)
    nothing = planned("j1-8b", f"model.base={qwen}", f"data.train={qwen}/none")
    assert "under 1 min" not in nothing
    for what in ("RL", "total", "devices"):
        assert re.search(rf"^  {what} +unknown$", nothing, re.MULTILINE), what


def test_only_the_adapter_is_trained_with_lora(qwen: Path) -> None:
    """36 layers of seven matrices, rank * (in + out) each: 4,096 wide, keys and values 1,024, MLPs 12,288."""
    words = (f"model.base={qwen}", f"data.train={qwen}/none", *FEW, "model.lora.rank=64")
    found = planned("tir-judge-zero-8b", *words)
    each = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12288)
    adapter, parameters = 36 * 64 * each, 8_190_735_360
    for part, size in {
        "weights, float32, sharded": 4 * parameters / 8,
        "adapter, float32, sharded": 4 * adapter / 8,
        "gradients, float32, sharded": 4 * adapter / 8,
        "Adam's moments, float32, sharded": 8 * adapter / 8,
    }.items():
        gib = f"{size / GIB:,.1f} GiB" if size >= 2**29 else f"{size / 2**20:,.1f} MiB"
        assert re.search(rf"{re.escape(part)} +{gib}", found), part
    assert "KL reference" not in found, "the model without its adapter is the reference"
    alone = memory.adapted(str(qwen), LoraConfig(rank=64))
    assert memory.training_bytes(alone, reference=True) == 4 * parameters + 16 * adapter


def test_packed_rows_are_planned_by_their_token_budget(qwen: Path) -> None:
    """16,384 tokens instead of four rows of 12,288, of which all may be scored; a longer row is a pass."""
    words = (f"model.base={qwen}", f"data.train={qwen}/none", *FEW)
    found = planned("tir-judge-zero-8b", *words, "rl.token_budget=16384")
    assert "in RL, with rl.token_budget = 16,384 tokens of packed rows:" in found
    for part, size in {
        "activations kept between layers": 2 * 16384 * 4096 * 36,
        "output layer, one tile of logits": 4096 * 32768 * 2 + 16384 * 4096 * 2,
        "mask of packed rows": 3 * 16384**2,
    }.items():
        shown = f"{size / GIB:,.1f} GiB" if size >= 2**29 else f"{size / 2**20:,.1f} MiB"
        assert re.search(rf"{part} +{shown}", found), part
    less = planned("tir-judge-zero-8b", *words, "rl.token_budget=8192")
    assert "8,192 tokens of packed rows, but at least one row of 4,096 + 8,192 tokens:" in less
    assert re.search(rf"activations kept between layers +{2 * 12288 * 4096 * 36 / GIB:,.1f} GiB", less)
    more = planned("tir-judge-zero-8b", *words, "rl.token_budget=100000")
    size = re.search(r"does not fit; rl\.token_budget = (\d+) does", more)
    assert size is not None
    again = planned("tir-judge-zero-8b", *words, f"rl.token_budget={size[1]}")
    assert "of 74.5 GiB: fits" in again
    above = planned("tir-judge-zero-8b", *words, f"rl.token_budget={int(size[1]) + 1024}")
    assert "of 74.5 GiB: does not fit" in above


def test_without_vllm_each_device_samples_with_a_full_copy(qwen: Path) -> None:
    """Copy and cache are in float32; on a single device the trained weights sample, unless off-policy."""
    words = (f"model.base={qwen}", f"data.train={qwen}/none", *FEW, "rl.generator=transformers")
    copy = f"the sampler's weights, float32, whole +{4 * 8_190_735_360 / GIB:,.1f} GiB"
    cache = f"KV cache, float32 +{32 * 2100 * 2 * 36 * 8 * 128 * 4 / GIB:,.1f} GiB"
    shared = planned("tir-judge-zero-8b", *words)
    assert re.search(copy, shared)
    assert re.search(cache, shared)
    alone = planned("tir-judge-zero-8b", *words, "rates.devices=1")
    assert "the sampler's weights" not in alone
    assert re.search(cache, alone)
    ahead = planned(
        "tir-judge-zero-8b", *words, "rates.devices=1", "rl.off_policy=true", "rl.importance_cap=2.0"
    )
    assert re.search(copy, ahead)
    served = ("rl.generator=vllm-server", 'rl.server.urls=["http://127.0.0.1:8000"]')
    elsewhere = planned("tir-judge-zero-8b", *words[:-1], *served)
    assert not re.search(r"the sampler's weights|KV cache|vLLM's engine", elsewhere)


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
    shape = memory.shape(str(qwen))
    found = memory.training_bytes(shape, reference=True, sampler=sampler, off_policy=off_policy)
    assert found == 8_190_735_360 * bytes_a_parameter


def test_the_plan_lists_the_disk_space_by_part(qwen: Path) -> None:
    """Three RL and two SFT stages keep two checkpoints each, and three stages select one.

    One more checkpoint is written before an old one is deleted. A checkpoint has 12 bytes per parameter. A
    rollout has its record, 1,500 tokens of prompt, 600 tokens of response with their programs again, and 7
    bytes per response token in Parquet.
    """
    found = planned("tir-judge-zero-8b", f"model.base={qwen}", f"data.train={qwen}/none")
    each = 800 + 4 * (1500 + 2 * 600) + 7 * 600
    rollouts = 3 * 577 * 128 * 8 * each
    for part, size in {
        "checkpoints": f"{11 * 12 * 8_190_735_360 / GIB:,.1f} GiB",
        "models": f"{8 * 4 * 8_190_735_360 / GIB:,.1f} GiB",
        "rollouts": f"{rollouts / GIB:,.1f} GiB",
    }.items():
        assert re.search(rf"^  {part} +{size}$", found, re.MULTILINE), part


@pytest.mark.parametrize(
    ("name", "hours", "dollars"),
    [
        ("tir-judge-zero-8b", ["2.5", "3.5", "23.0", "29.0"], ["about \\$690", "\\$0"]),
        ("tir-judge-distill-8b", ["1.0", "1.5", "8.5", "11.0"], ["about \\$210", "about \\$130"]),
    ],
)
def test_the_cost_is_compared_with_table_8(
    name: str, hours: list[str], dollars: list[str], qwen: Path
) -> None:
    found = planned(name, f"model.base={qwen}", f"data.train={qwen}/none")
    shown = dict(zip(("SFT", "rejection sampling", "RL", "total"), hours, strict=True))
    for kind, printed in shown.items():
        assert re.search(rf"^  {kind} .* {printed} h$", found, re.MULTILINE), kind
    for who, printed in zip(("devices", "teacher"), dollars, strict=True):
        assert re.search(rf"^  {who} +\$.* {printed}$", found, re.MULTILINE), who


def test_dollars_are_hours_of_devices(qwen: Path) -> None:
    rates = Rates(devices=8, dollars=2.5, teacher_prompt_dollars=0.3, teacher_response_dollars=2.5)
    assert rates.cost(29 * 3600) == pytest.approx(580)
    assert rates.teacher_cost(1_000_000) == pytest.approx(1500 * 0.3 + 600 * 2.5)
    other = planned("rm-r1-instruct-7b", f"model.base={qwen}", f"data.train={qwen}/none")
    assert "Table 8" not in other


def test_a_plan_needs_neither_rows_nor_a_model(tmp_path: Path) -> None:
    missing = tmp_path / "rows.jsonl"
    recipe = load(Recipe, "j1-8b", [f"data.train={missing}", f"model.base={tmp_path}", "rl.epochs=2"])
    found = lines(recipe, tmp_path / "run")
    assert "whose config.json is not available" in found[0]
    assert found[1] == f"{missing} does not exist: stages that go through its rows are not counted"
    assert table(found)["rl"][1] == "2 epochs in batches of 512 x 5"
