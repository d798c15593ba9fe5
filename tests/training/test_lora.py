"""LoRA: the adapted policy samples, adapters are merged or kept, and a later stage goes on with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLora
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from tests.tirjudge.judge_command import command
from tests.training.conftest import ENVIRONMENTS, small_rl, source
from tirjudge.models import weights_sha256
from tirjudge.models.resolve import read_note
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_training import model_folder
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.training_loop import train_rl
from tirjudge_training.run.model_size import trained_shape
from tirjudge_training.sft import Sample, SftConfig, train_sft

LORA = LoraConfig(rank=4, alpha=8)
RL = small_rl(micro_batch=2, learning_rate=1e-2)
SFT = SftConfig(batch=4, micro_batch=2, learning_rate=1e-2, checkpoint_every=1)
IDS = torch.arange(2, 30).unsqueeze(0)
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def main(start: Path, folder: Path) -> None:
    """Run RL and SFT with an adapter that is merged at the end."""
    for name, stage in {"rl": reinforced, "sft": fine_tuned}.items():
        model = stage(start, folder / name)
        model_folder.save(folder / name / "model", model, start=str(start))


def reinforced(start: Path, folder: Path) -> Any:
    with RunFolder(folder) as run:
        options = {"environments": ENVIRONMENTS, "source": source, "seed": 1, "say": lambda line: None}
        return train_rl(start, run, RL, lora=LORA, **options)


def samples(count: int) -> list[Sample]:
    return [Sample((1, 2 + i % 9, 3), (-100, 2 + i % 9, 3)) for i in range(count)]


def fine_tuned(start: Path, folder: Path, lora: LoraConfig = LORA, count: int = 16, **options: Any) -> Any:
    with RunFolder(folder) as run:
        return train_sft(start, run, SFT, samples(count), lora=lora, seed=1, say=lambda line: None, **options)


@pytest.fixture(scope="module")
def trained(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    main(roomy_model, folder)
    return folder


@pytest.mark.parametrize("stage", ["rl", "sft"])
def test_the_saved_model_is_the_start_and_what_the_adapter_adds(
    stage: str, trained: Path, roomy_model: Path
) -> None:
    """Every adapted matrix of the saved model changed within the adapter's rank, and nothing else changed."""
    before, after = (
        load_file(folder / "model.safetensors") for folder in (roomy_model, trained / stage / "model")
    )
    assert before.keys() == after.keys()
    for name, weight in before.items():
        moved = after[name] - weight
        if any(layer in name for layer in ADAPTED):
            assert torch.linalg.matrix_rank(moved, rtol=1e-3) in range(1, LORA.rank + 1), name
        else:
            assert not moved.any(), name


def test_the_adapted_policy_samples_and_stays_close_to_the_start(trained: Path) -> None:
    first, *later = read_lines(trained / "rl" / "metrics.jsonl")
    assert first["kl"] == 0, "a new adapter changes nothing, and its model is the reference"
    assert all(row["kl"] > 1e-4 for row in later)
    assert all(0 < row["sampler_gap"] < 1e-5 for row in (first, *later))


def test_checkpoint_and_model_give_the_same_verdicts(trained: Path, tmp_path: Path) -> None:
    """`tirjudge judge` reads both the checkpoint's adapter and the merged weights."""
    stage = trained / "rl"
    verdicts = [judged(stage / part, tmp_path) for part in ("checkpoints/checkpoint-2", "model")]
    assert verdicts[0] == verdicts[1]
    adapter, whole = (model_folder.load(stage / part)[0] for part in ("checkpoints/checkpoint-2", "model"))
    for name, weight in whole.state_dict().items():
        assert torch.allclose(adapter.state_dict()[name], weight, rtol=0, atol=1e-6), name


@pytest.fixture(scope="module")
def adapters(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Train an adapter in two stages, the second of which goes on with the first one's."""
    folder, start, written = tmp_path_factory.mktemp("adapters"), roomy_model, []
    lora = LORA.model_copy(update={"merge": False})
    for name in ("first", "second"):
        model = fine_tuned(start, folder / name, lora)
        model_folder.save(
            folder / name / "model", model, start=str(start), lora=lora, note={"prompts": "smol"}
        )
        written.append(start := folder / name / "model")
    return written


@pytest.mark.slow
def test_an_unmerged_adapter_is_all_that_a_stage_writes(adapters: list[Path], roomy_model: Path) -> None:
    for folder in adapters:
        names = {file.name for file in folder.iterdir()}
        assert names == {"adapter_config.json", "adapter_model.safetensors", "tirjudge.json"}
        weights = load_file(folder / "adapter_model.safetensors")
        assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
        assert len(weights) == 2 * 2 * len(ADAPTED)
        note = read_note(str(folder))
        assert note.prompts == "smol"
        assert note.base is not None
        assert (note.base.name, note.base.sha256) == (str(roomy_model), weights_sha256(str(roomy_model)))


@pytest.mark.slow
def test_a_later_stage_goes_on_with_the_adapter(adapters: list[Path], roomy_model: Path) -> None:
    """The second stage has one adapter of the same rank, which began as the first one's."""
    lora = LORA.model_copy(update={"merge": False})
    resumed = model_folder.load_trainable(adapters[0], lora)
    weights = load_file(adapters[0] / "adapter_model.safetensors")
    found = {
        name.replace(".default.", "."): weight
        for name, weight in resumed.named_parameters()
        if weight.requires_grad
    }
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], weight.float()), name
    base, first, second = (
        model_folder.load(folder)[0].state_dict() for folder in (roomy_model, adapters[0], adapters[1])
    )
    for name, weight in base.items():
        moved, further = first[name] - weight, second[name] - weight
        if any(layer in name for layer in ADAPTED):
            assert torch.linalg.matrix_rank(further, rtol=1e-3) in range(1, LORA.rank + 1), name
            assert not torch.equal(moved, further), name
        else:
            assert not further.any(), name


@pytest.mark.slow
def test_whole_weights_that_begin_as_a_merged_adapter_are_their_own_reference(
    adapters: list[Path], tmp_path: Path
) -> None:
    """The KL divergence from the start is 0 in the first batch, and not that from the adapter's base."""
    options = {"environments": ENVIRONMENTS, "source": source, "seed": 1, "say": lambda line: None}
    with RunFolder(tmp_path) as run:
        train_rl(adapters[0], run, RL, **options)
    first, second = read_lines(tmp_path / "metrics.jsonl")
    assert abs(first["kl"]) < 1e-6
    assert second["kl"] > 1e-4


def test_frozen_weights_in_bfloat16_leave_the_adapter_in_float32(roomy_model: Path, tmp_path: Path) -> None:
    lora = LORA.model_copy(update={"merge": False})
    model = fine_tuned(roomy_model, tmp_path, lora, dtype="bfloat16")
    kinds = {weight.requires_grad: weight.dtype for weight in model.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    moved = [weight for name, weight in model.named_parameters() if ".lora_B." in name]
    assert all(weight.any() for weight in moved), "no update is lost to rounding"


def test_unknown_target_layers_are_refused_before_the_run(tmp_path: Path) -> None:
    words = ["train", "--recipe", "judgelrm-3b", "--shrink", "--output", str(tmp_path / "run")]
    ran = command(*words, "--set", 'model.lora.targets=["w_pack"]', code=2)
    assert ran.stderr.startswith("tirjudge train: model.lora.targets: ")
    assert "w_pack" in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head", "w_pack", "norm", "mlp", "all-linear"])
def test_a_target_that_is_no_linear_layer_is_refused_with_those_of_the_model(
    target: str, roomy_model: Path
) -> None:
    with pytest.raises(BadRecipe) as refused:
        trained_shape(str(roomy_model), LoraConfig(targets=("q_proj", target)))
    assert f"{target!r} is none of {roomy_model}, which has {', '.join(ADAPTED)}: " in str(refused.value)
    # 2 layers x (32 inputs + 32 outputs) x rank 4.
    assert trained_shape(str(roomy_model), LoraConfig(rank=4, targets=("q_proj",))).trained == 512


def test_a_model_without_linear_layers_has_no_place_for_an_adapter(tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2)).save_pretrained(tmp_path)
    for targets in ((), ("c_attn",)):
        with pytest.raises(BadRecipe, match=r"has no linear layers for an adapter: leave out \[model.lora\]"):
            trained_shape(str(tmp_path), LoraConfig(targets=targets))


def started(start: Path, folder: Path, **config: Any) -> torch.Tensor:
    """Write an adapter with random weights by PEFT; return the logits that PEFT computes with it."""
    model = AutoModelForCausalLM.from_pretrained(start, dtype="float32")
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"} | config
    tuned = get_peft_model(model, PeftLora(**settings)).eval()
    torch.manual_seed(1)
    with torch.inference_mode():
        for weight in (weight for weight in tuned.parameters() if weight.requires_grad):
            weight.add_(torch.randn_like(weight), alpha=0.1)
        tuned.save_pretrained(folder)
        return tuned(IDS).logits


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings", "ignore:.*gradient_checkpointing")
@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`", "ignore:.*no longer tied after")
@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens"),
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head"),
        # PEFT unties the embeddings by itself only for the usual initial weights.
        ({"target_modules": ["q_proj", "embed_tokens"], "init_lora_weights": "gaussian"}, "embed_tokens"),
        ({"target_modules": ["q_proj", "lm_head"], "init_lora_weights": "gaussian"}, "lm_head"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
    ],
)
def test_a_start_of_more_than_linear_layers_is_merged_as_peft_computes_it_or_refused(
    config: dict[str, Any], named: str, roomy_model: Path, tmp_path: Path
) -> None:
    """The embeddings of the model below are tied."""
    expected = started(roomy_model, tmp_path / "start", **config)
    merging, start = LoraConfig(rank=4, alpha=8), str(tmp_path / "start")
    with pytest.raises(BadRecipe, match=rf"adapter with .*{named}.*set model.lora.merge=true"):
        trained_shape(start, merging.model_copy(update={"merge": False}))
    trained_shape(start, merging)
    model = model_folder.load_trainable(start, merging)
    model_folder.save(tmp_path / "saved", model, start=start)
    for found in (model, AutoModelForCausalLM.from_pretrained(tmp_path / "saved")):
        assert (found.eval()(IDS).logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("lora", "advice"),
    [({"alpha": 32}, "model.lora.alpha=8.0"), ({"targets": ("k_proj",)}, r"model.lora.targets=\['q_proj'\]")],
)
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing")
def test_an_adapter_goes_on_with_its_own_settings_only(
    lora: dict[str, Any], advice: str, roomy_model: Path, tmp_path: Path
) -> None:
    started(roomy_model, tmp_path)
    with pytest.raises(BadRecipe, match=f"set {advice}, with another --output if the run has begun$"):
        trained_shape(str(tmp_path), LoraConfig(**{"rank": 4, "alpha": 8, "merge": False} | lora))


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing")
def test_an_adapter_with_dropout_goes_on_without(roomy_model: Path, tmp_path: Path) -> None:
    """The sampler drops nothing, so that the trained policy would be another one."""
    expected = started(roomy_model, tmp_path, lora_dropout=0.5)
    model = model_folder.load_trainable(tmp_path, LoraConfig(rank=4, alpha=8, merge=False)).train()
    assert (model(IDS).logits - expected).abs().max() < 1e-4


@pytest.mark.slow
def test_an_adapter_of_another_rank_is_refused_before_the_run(adapters: list[Path], tmp_path: Path) -> None:
    words = ["train", "--recipe", "smol", "--model", str(adapters[0]), "--output", str(tmp_path / "run")]
    ran = command(*words, "--set", "data.demonstrations=", code=2)
    line = "is an adapter of rank 4, with which training goes on: set model.lora.rank=4"
    begun = "with another --output if the run has begun"
    assert ran.stderr == f"tirjudge train: model.lora.rank: {adapters[0]} {line}, {begun}\n"


def judged(model: Path, folder: Path) -> Any:
    rows, output = folder / "rows.jsonl", folder / f"{model.name}.jsonl"
    rows.write_text(json.dumps({"id": "1", "prompt": "q", "responses": ["good", "bad"]}) + "\n")
    # A checkpoint has no note that names the format of its training.
    words = ["judge", "--format", "tir", str(rows), "--model", str(model), "--output", str(output)]
    command(*words, "--max-tokens", "40", code=0)
    (row,) = read_lines(output)
    return [(view["segments"], view["verdict"]) for view in row["views"]]
