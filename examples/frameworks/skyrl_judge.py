"""SkyRL-gym: rollouts in the judge's environment, as SkyRL's generator plays them."""

import skyrl_gym
from judged import ROWS, SETTINGS
from policy import Policy

skyrl_gym.register(id="judge", entry_point="tirjudge_environments.adapters.skyrl:JudgeEnv")


def main() -> None:
    policy = Policy()
    for row in ROWS:
        env = skyrl_gym.make("judge", env_config=SETTINGS, extras={"extra_info": row})
        prompt, _ = env.init([])
        text, done = policy.prompt(prompt), False
        while not done:
            written = policy.write(text, env.stop)
            step = env.step(written)
            text += written + "".join(message["content"] for message in step["observations"])
            done = step["done"]
        print(row["id"], step["reward"], step["metadata"]["parts"])
        env.close()


if __name__ == "__main__":
    main()
