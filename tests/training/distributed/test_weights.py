"""The weights that are saved and sampled with have the adapter merged."""

from __future__ import annotations

import pytest
import torch
from peft import get_peft_model, get_peft_model_state_dict
from transformers import Qwen2Config, Qwen2ForCausalLM

from tirjudge_training.distributed.checkpoints import adapter_weights, full_weights
from tirjudge_training.model_folder import LoraConfig

SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing` is deprecated")
def test_merged_weights_equal_those_of_peft_for_layers_with_a_bias() -> None:
    """Qwen2's projections have a bias."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_hidden_layers=2, **SIZE))
    settings = LoraConfig(rank=4, alpha=8).adapter()
    settings.init_lora_weights = False
    adapted = get_peft_model(model, settings)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    found = {name: weight.clone() for name, weight in full_weights(model)}
    expected = adapted.merge_and_unload().state_dict()
    assert found.keys() == expected.keys()
    assert any(name.endswith("bias") for name in found)
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, rtol=0, atol=1e-6), name


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing` is deprecated")
def test_an_adapter_is_saved_without_the_copy_that_the_kl_term_compares_with() -> None:
    """TRL adds this copy as `ref` when RL goes on with an adapter and `beta` is above 0."""
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_hidden_layers=2, **SIZE))
    adapted = get_peft_model(model, LoraConfig(rank=4, alpha=8).adapter())
    alone = dict(adapter_weights(adapted))
    adapted.add_adapter("ref", adapted.peft_config["default"])
    assert dict(adapter_weights(adapted)).keys() == alone.keys() == get_peft_model_state_dict(adapted).keys()
