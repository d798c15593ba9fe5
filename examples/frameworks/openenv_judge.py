"""OpenEnv: rollouts on the judge's server (openenv_server.py), through its client."""

import asyncio

from judged import ROWS
from policy import Policy

from tirjudge_environments.adapters.openenv import JudgeAction, JudgeClient


async def main(url: str = "http://127.0.0.1:8000") -> None:
    policy = Policy()
    for row in ROWS:
        async with JudgeClient(base_url=url) as env:
            result = await env.reset(row=row)
            text, stop = policy.prompt(result.observation.messages), result.observation.stop
            while not result.done:
                written = policy.write(text, stop)
                result = await env.step(JudgeAction(text=written))
                text += written + "".join(message["content"] for message in result.observation.messages)
            print(row["id"], result.reward, result.observation.parts)


if __name__ == "__main__":
    asyncio.run(main())
