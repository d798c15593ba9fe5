"""verl: rollouts by the judge's agent loop; the miniature takes the place of verl's inference servers."""

import asyncio
from typing import Any

from judged import ROWS, SETTINGS
from omegaconf import OmegaConf
from policy import Policy
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from tirjudge_environments.adapters.verl import JudgeLoop


class Servers:
    """A stand-in for the inference servers that verl's trainer passes to an agent loop."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def generate(self, *, prompt_ids: list[int], sampling_params: dict, **_: Any) -> TokenOutput:
        ids = self._policy.continue_ids(prompt_ids, sampling_params["stop"], sampling_params["max_tokens"])
        return TokenOutput(token_ids=ids)


async def main() -> None:
    policy = Policy()
    lengths = {"prompt_length": 2048, "response_length": 1024}
    loop = JudgeLoop(
        trainer_config=DictConfigWrap(OmegaConf.create({"actor_rollout_ref": {"rollout": lengths}})),
        server_manager=Servers(policy),
        tokenizer=policy.tokenizer,
        processor=None,
        dataset_cls=object,
        data_config=DictConfigWrap(OmegaConf.create({})),
        settings=SETTINGS,
    )
    for row in ROWS:
        output = await loop.run({"temperature": 0.0}, extra_info=row)
        by_model, whole = sum(output.response_mask), len(output.response_ids)
        print(row["id"], output.reward_score, f"{by_model} of {whole} tokens are the model's")


if __name__ == "__main__":
    asyncio.run(main())
