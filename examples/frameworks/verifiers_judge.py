"""verifiers: rollouts with its `null` harness, against any OpenAI-compatible endpoint with tool calls."""

import asyncio
import sys

import verifiers.v1 as vf
from judged import PAIRS
from verifiers.v1.harnesses.null import NullHarnessConfig

from tirjudge_environments.adapters.verifiers import JudgeTaskset, JudgeTasksetConfig


async def main(url: str, model: str) -> None:
    config = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"),
        runtime=vf.SubprocessConfig(),
        model=model,
        client=vf.EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY"),
        max_turns=8,
    )
    async with vf.Agent(config) as agent:
        for task in JudgeTaskset(JudgeTasksetConfig(rows=PAIRS)):
            trace = await agent.run(task)
            print(task.data.row["id"], trace.reward, trace.metrics)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
