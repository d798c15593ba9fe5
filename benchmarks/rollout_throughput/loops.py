"""The loops of other trainers, as they ship, over the same dialogues: TRL's, verl's and that of verifiers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.rollout_throughput.base import Loop, printed
from benchmarks.rollout_throughput.dialogues import (
    LONGEST,
    SAMPLING,
    SCHEMA,
    Dialogue,
    Tokens,
    Workload,
    python_tool,
)
from benchmarks.rollout_throughput.verifiers_loop import verifiers_loop
from tirjudge.generation.base import BusyClock
from tirjudge_environments import Context, Prompt


@asynccontextmanager
async def trl_loop(workload: Workload) -> AsyncIterator[Loop]:
    """Open TRL's `GRPOTrainer(tools=[...])` with its default generator, transformers' `generate`."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from tirjudge_training.rl.trl_rollout import quiet

    loop, sandboxes, clock = asyncio.get_running_loop(), [None], BusyClock()

    def run(code: str) -> str:
        # TRL calls a tool in the thread of its loop, which is not the thread of the sandbox.
        done = asyncio.run_coroutine_threadsafe(printed(sandboxes[0], code), loop)
        return done.result()

    tool = python_tool(run)
    with TemporaryDirectory() as folder:
        with quiet():
            trainer = GRPOTrainer(
                workload.model,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=GRPOConfig(
                    output_dir=folder,
                    use_cpu=True,
                    dataloader_pin_memory=False,
                    bf16=False,
                    gradient_checkpointing=False,
                    per_device_train_batch_size=2,
                    num_generations=2,
                    max_completion_length=LONGEST * 2,
                    generation_kwargs={"do_sample": False},
                    report_to=[],
                ),
                train_dataset=Dataset.from_list([{"prompt": one.messages} for one in workload.dialogues]),
                processing_class=workload.tokenizer,
                tools=[tool],
            )
        generate = trainer._generate_single_turn

        def timed(*args: Any, **options: Any) -> Any:
            with clock.working():
                return generate(*args, **options)

        trainer._generate_single_turn = timed

        async def roll_out(dialogues: Sequence[Dialogue], sandbox: Any) -> list[Tokens]:
            sandboxes[0] = sandbox
            prompts = [one.messages for one in dialogues]
            # TRL makes these for each batch, just before it generates.
            trainer._sync_tool_dicts = [{tool.__name__: tool}] * len(prompts)
            trainer._async_tool_dicts = [{}] * len(prompts)
            with quiet():
                ids, written, masks, *_ = await asyncio.to_thread(trainer._generate, prompts)
            return [Tokens.of(*each) for each in zip(ids, written, masks, strict=True)]

        yield Loop(f"TRL {version('trl')}", roll_out, lambda: clock.seconds)


@asynccontextmanager
async def verl_loop(workload: Workload) -> AsyncIterator[Loop]:
    """Open verl's `tool_agent` loop, whose model server is the generator that our engine uses too."""
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.tools.function_tool import FunctionTool
    from verl.tools.schemas import OpenAIFunctionToolSchema
    from verl.workers.rollout.replica import TokenOutput

    generator = workload.generator

    class Server:
        async def generate(self, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
            context = Context(Prompt(messages=()), (), tuple(prompt_ids))
            done = await generator.generate(context, SAMPLING)
            return TokenOutput(token_ids=list(done.token_ids or ()), log_probs=list(done.logprobs or ()))

    turns = {"max_user_turns": 4, "max_assistant_turns": 5, "max_parallel_calls": 1, "format": "hermes"}
    turns |= {"max_tool_response_length": 2000, "tool_response_truncate_side": "middle"}
    rollout = {"prompt_length": 1024, "response_length": 2 * LONGEST, "multi_turn": turns}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout | {"full_determinism": False}}})
    data = OmegaConf.create({})

    async def roll_out(dialogues: Sequence[Dialogue], sandbox: Any) -> list[Tokens]:
        async def run(code: str) -> str:
            return await printed(sandbox, code)

        tool = FunctionTool(
            "run_python", python_tool(run), OpenAIFunctionToolSchema.model_validate(SCHEMA), is_async=True
        )

        async def one(dialogue: Dialogue) -> Tokens:
            # verl makes a loop for each rollout too.
            agent = ToolAgentLoop(
                trainer_config=DictConfigWrap(config),
                server_manager=Server(),
                tokenizer=workload.tokenizer,
                processor=None,
                dataset_cls=object,
                data_config=DictConfigWrap(data),
                hf_model_type="qwen2",
                tools=ToolListWrap([tool]),
            )
            with patch.object(agent, "process_multi_modal_info", _no_media):
                output = await agent.run({"temperature": 0.0}, raw_prompt=dialogue.messages)
            return Tokens.of(output.prompt_ids, output.response_ids, output.response_mask)

        return await asyncio.gather(*map(one, dialogues))

    yield Loop(f"verl {version('verl')}", roll_out, lambda: generator.busy_seconds)


async def _no_media(messages: Any) -> dict[str, Any]:
    """Replace a step that reads the class of verl's dataset, which is not part of the loop."""
    return {}


LOOPS = {"trl": trl_loop, "verl": verl_loop, "verifiers": verifiers_loop}
