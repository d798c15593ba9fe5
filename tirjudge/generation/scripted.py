"""A generator that returns prepared turns, for tests, demonstrations and replays."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge_environments import Completion, Context, Encoder, Finish, Usage

Turn = str | Completion
Script = Callable[[Context], Turn]
"""A function from the dialogue so far to the next turn."""


class ScriptedGenerator:
    """Returns turns from a list, in the order of the requests, or from a function of the context.

    A turn is a text or a Completion. A text is returned unchanged, whatever the prompt's stop strings: real
    endpoints also return text after a stop string. With an encoder it carries its token ids, each with a
    log-probability of 0.
    """

    def __init__(
        self, turns: Iterable[Turn] | Script, *, encoder: Encoder | None = None, model: str = "scripted"
    ) -> None:
        self.model = model
        self.encoder = encoder
        self._script = turns if callable(turns) else _in_order(turns)

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Return the next turn. Raises GeneratorFailed at the end of a list."""
        await asyncio.sleep(0)
        turn = self._script(context)
        if isinstance(turn, Completion):
            return turn
        ids = None if self.encoder is None else tuple(self.encoder.text(turn))
        return Completion(
            text=turn,
            finish=Finish.END,
            token_ids=ids,
            logprobs=None if ids is None else (0.0,) * len(ids),
            usage=Usage(prompt_tokens=len(context.ids or ()), completion_tokens=len(ids or ())),
        )

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def _in_order(turns: Iterable[Turn]) -> Script:
    left = deque(turns)

    def following(_: Context) -> Turn:
        if not left:
            raise GeneratorFailed("the script has no more turns")
        return left.popleft()

    return following
