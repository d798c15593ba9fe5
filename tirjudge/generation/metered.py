"""A generator that counts its calls and stops before they cost too much."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from tirjudge.generation.base import Generator, Sampling
from tirjudge.spending import Spending
from tirjudge_environments import Completion, Context, Encoder, Usage

_TEMPLATE_TOKENS = 64
"""An upper bound of the tokens that a chat template adds to one message."""


class MeteredGenerator:
    """A generator that books every call of another one in `spending`.

    A call that fails or is cancelled counts nothing, because its cost is not known. If the endpoint does not
    count tokens, a call counts the most that it could have cost.
    """

    def __init__(self, inner: Generator, spending: Spending) -> None:
        self._inner, self._spending = inner, spending

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def encoder(self) -> Encoder | None:
        return self._inner.encoder

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Return a completion; raises CostReached instead of exceeding the limit."""
        most = Usage(_prompt_bound(context), sampling.max_tokens)
        async with self._spending.reserved(most):
            started = time.monotonic()
            completion = await self._inner.generate(context, sampling)
            counted = completion.usage if completion.usage != Usage() else most
            self._spending.add(counted, time.monotonic() - started)
        return completion

    async def close(self) -> None:
        await self._inner.close()


def _prompt_bound(context: Context) -> int:
    """Return the most tokens that the context can have: a token holds at least one byte."""
    if context.ids is not None:
        return len(context.ids)
    prompt = context.prompt
    texts = [message.content for message in prompt.messages]
    texts += [prompt.prefill, *(json.dumps(asdict(tool)) for tool in prompt.tools)]
    for segment in context.segments:
        texts += [segment.text, segment.reasoning, *(call.arguments for call in segment.tool_calls)]
    return sum(len(text.encode(errors="surrogatepass")) + _TEMPLATE_TOKENS for text in texts if text)
