"""`tirjudge train --distill` with a miniature as the teacher, behind a real endpoint on loopback.

    OMP_NUM_THREADS=1 python -m benchmarks.distill_miniature --output runs/distill-0

The teacher is the miniature at temperature 1, served as a plain chat endpoint.
The student is a freshly warmed-up miniature, which learns from the dialogues that the teacher got right;
`python -m examples.miniature` makes it and the rows first.
Further options are passed to `tirjudge train`; `results.md` in the run folder has the accuracies. This tests
the mechanism only, since teacher and student are the same kind of model.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.miniature import TRAINED
from tests.command import TIRJUDGE
from tests.loopback import served
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import Context, Finish, Message, Prompt

CONCURRENCY = 128


class ChatServer:
    """An endpoint `/v1/chat/completions` for a local model, which takes its turns as one text."""

    def __init__(self, folder: str) -> None:
        self._generator = TransformersGenerator.load(folder, max_rows=CONCURRENCY)

    async def answer(self, request: Request) -> Response:
        """Return one completion; `stop_reason` names the stop string that ended it, as vLLM does."""
        body = await request.json()
        messages = [Message(**message) for message in body["messages"]]
        # The miniature was trained on programs and outputs that follow each other in one turn.
        asked = next(place for place, message in enumerate(messages, 1) if message.role == "user")
        written = "".join(f"{message.content}\n" for message in messages[asked:])
        prompt = Prompt(messages=tuple(messages[:asked]), stop=tuple(body.get("stop", ())))
        encoder = self._generator.encoder
        ids = tuple(encoder.prompt(prompt) + encoder.text(written))
        sampling = Sampling(temperature=body["temperature"], max_tokens=body["max_tokens"], seed=body["seed"])
        completion = await self._generator.generate(Context(prompt, ids=ids), sampling)
        stops = prompt.stop if completion.finish is Finish.STOP else ()
        turn = written + completion.text
        return JSONResponse(
            {
                "choices": [
                    {
                        "message": {"role": "assistant", "content": completion.text},
                        "finish_reason": "length" if completion.finish is Finish.LENGTH else "stop",
                        "stop_reason": max(stops, key=turn.rfind, default=None),
                    }
                ],
                "usage": {
                    "prompt_tokens": completion.usage.prompt_tokens,
                    "completion_tokens": completion.usage.completion_tokens,
                },
            }
        )


def main() -> None:
    """Serve the teacher, run `tirjudge train --distill` and exit with its code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--teacher", default=str(TRAINED), help="the model folder of a miniature")
    options, train_options = parser.parse_known_args()
    torch.set_num_threads(1)
    settings = {
        "teacher.family": "mini",
        "teacher.tier": "turns",
        "teacher.max_tokens": "320",
        "teacher.concurrency": str(CONCURRENCY),
    }
    answer = ChatServer(options.teacher).answer
    with served(Route("/v1/chat/completions", answer, methods=["POST"])) as url:
        command = [TIRJUDGE, "train", "--recipe", "examples/miniature/recipes/mini.toml", "--distill"]
        command += ["--teacher", "miniature", "--teacher-base-url", url]
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        sys.exit(subprocess.run([*command, *train_options], check=False).returncode)


if __name__ == "__main__":
    main()
