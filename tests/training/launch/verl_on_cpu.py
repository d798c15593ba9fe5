"""A CPU platform and a sampler for verl, which has neither: they take the place of CUDA and of vLLM in tests.

verl imports this module in all its processes, as `VERL_USE_EXTERNAL_MODULES` says. Everything else of its
trainer is its own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import ray
import torch
from verl.plugin.platform import set_platform
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.rollout import base, replica

ROLLOUT = "transformers"
"""The name of the sampler, for `actor_rollout_ref.rollout.name`."""


class Cpu(PlatformCUDA):
    """A device that is always there, in Ray a "GPU" that the test declares."""

    device_name = "cpu"
    device_module = SimpleNamespace(
        **{
            name: getattr(torch.cpu, name)
            for name in ("is_available", "current_device", "set_device", "synchronize")
        },
        **{
            name: lambda *_: 0 for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated")
        },
        memory_reserved=lambda *_: 0,
        mem_get_info=lambda *_: (0, 0),
        empty_cache=lambda: None,
        reset_peak_memory_stats=lambda *_: None,
        manual_seed=lambda seed: None,
        manual_seed_all=lambda seed: None,
        device_count=lambda: 1,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        get_device_name=lambda *_: "CPU",
        get_device_properties=lambda *_: SimpleNamespace(total_memory=0),
    )

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None: ...

    def manual_seed_all(self, seed: int) -> None: ...

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def communication_backend_name(self) -> str:
        return "gloo"

    def is_ipc_supported(self) -> bool:
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Generator[None]:
        yield


set_platform(Cpu())
_init_process_group = torch.distributed.init_process_group


def _on_gloo(backend: str | None = None, **options: Any) -> None:
    """Start the process group for one device; verl names the CPU, and then its device, which is the same."""
    _init_process_group(backend="gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **options)


torch.distributed.init_process_group = _on_gloo


@ray.remote(num_cpus=0)
class Server:
    """A model behind the interface of verl's inference servers."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self._updates = 0

    def address(self) -> str:
        return "127.0.0.1:0"

    def load(self, weights: dict[str, Any], step: int | None) -> None:
        self._model.load_state_dict(weights, strict=False)
        self._updates = step or 0

    @torch.no_grad()
    def generate(self, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        greedy = sampling_params["temperature"] == 0
        sampling = {} if greedy else {"temperature": sampling_params["temperature"], "top_k": 0}
        made = self._model.generate(
            torch.tensor([prompt_ids]),
            attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
            # verl's own loop of one turn names no limit.
            max_new_tokens=sampling_params.get("max_tokens", 16),
            do_sample=not greedy,
            stop_strings=sampling_params.get("stop"),
            tokenizer=self._tokenizer,
            output_logits=True,
            return_dict_in_generate=True,
            **sampling,
        )
        ids = made.sequences[0, len(prompt_ids) :].tolist()
        logprobs = torch.stack(made.logits)[:, 0].log_softmax(-1)
        return replica.TokenOutput(
            token_ids=ids,
            log_probs=logprobs[torch.arange(len(ids)), ids].tolist(),
            stop_reason="completed",
            extra_fields={"global_steps": self._updates},
        )

    def wake_up(self) -> None: ...

    def sleep(self) -> None: ...


class Replica(replica.RolloutReplica):
    async def launch_servers(self) -> None:
        server = Server.options(name=f"server-{self.replica_rank}").remote(self.model_config.path)
        self.servers, self._server_handle = [server], server
        self._server_address = await server.address.remote()


class Adapter(base.BaseRollout):
    """The sampler's side in verl's workers: it sends the trainer's weights to the server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **options: Any) -> None:
        sent = {name: weight.detach().float().clone() for name, weight in weights}
        await ray.get_actor("server-0").load.remote(sent, options.get("global_steps"))


# Memory cannot be pinned without an accelerator.
_Offload = transformer_impl.CPUOffloadPolicy
transformer_impl.CPUOffloadPolicy = lambda **_: _Offload(pin_memory=False)
# verl registers its FSDP engine for two kinds of accelerators by name.
EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device="cpu")(
    transformer_impl.FSDPEngineWithLMHead
)
base._ROLLOUT_REGISTRY[ROLLOUT, "async"] = f"{__name__}.Adapter"
replica.RolloutReplicaRegistry.register(ROLLOUT, lambda: Replica)
