"""Sampling of tokens: one draw per row with its own seed, exact logprobs, and stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tirjudge.generation.base import SamplingOptions
from tirjudge_environments import Encoder

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Noise = np.ndarray[tuple[int], np.dtype[np.float32]]


def noise(seed: int, length: int) -> Noise:
    """Return a row's uniform draws in [0, 1), one per position: a function of (seed, position) alone."""
    return np.random.Generator(np.random.Philox(key=seed % (1 << 64))).random(length, dtype=np.float32)


def draw(
    logits: Tensor, uniforms: list[float], samplings: Sequence[SamplingOptions]
) -> tuple[list[int], list[float]]:
    """Draw one token per row by inverting the cumulative distribution; return tokens and logprobs.

    logits: `[rows, vocabulary]`. Logprobs are natural logarithms in float32, under the distribution that the
    token is drawn from, so after all of `samplings`; for a greedy row (temperature 0), whose distribution is
    a point, under the model's own at temperature 1. A row's token does not depend on the
    other rows. Raises ValueError for logits that are NaN.
    """
    logprobs = logits.float()
    temperatures = [one.temperature for one in samplings]
    if any(temperature not in (0.0, 1.0) for temperature in temperatures):
        logprobs = logprobs / logprobs.new_tensor([t or 1.0 for t in temperatures])[:, None]
    logprobs = logprobs.log_softmax(-1)
    if logprobs[:, 0].isnan().any():  # one NaN makes the whole row NaN
        raise ValueError("the model's logits are NaN: check its weights and its precision")
    cut = [i for i, one in enumerate(samplings) if one.temperature > 0 and one.truncation]
    if cut:
        logprobs[cut] = _truncated(logprobs[cut], [samplings[i] for i in cut])
    chosen = _invert(logprobs, logprobs.new_tensor(uniforms)) if any(temperatures) else logprobs.argmax(-1)
    if any(temperatures) and not all(temperatures):
        greedy = chosen.new_tensor([t == 0 for t in temperatures]).bool()
        chosen = logprobs.argmax(-1).where(greedy, chosen)
    return chosen.tolist(), logprobs.gather(1, chosen[:, None])[:, 0].tolist()


def _invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Return the first token whose cumulative probability exceeds the draw; its probability is never 0."""
    import torch

    # A GPU sums in parallel, in another order for each element, so in float32 the sums could decrease.
    exact = torch.float64 if logprobs.is_cuda else torch.float32
    cumulative = logprobs.exp().cumsum(-1, dtype=exact)
    targets = (uniforms * cumulative[:, -1])[:, None]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0]


def _truncated(logprobs: Tensor, samplings: Sequence[SamplingOptions]) -> Tensor:
    """Keep the smallest set of the most likely tokens whose probability reaches top_p, renormalised."""
    ordered, order = logprobs.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    outside = before >= logprobs.new_tensor([one.top_p for one in samplings])[:, None]
    outside = outside.scatter(1, order, outside)
    return logprobs.masked_fill(outside, float("-inf")).log_softmax(-1)


def draw_one(logprobs: Array, uniform: float, sampling: SamplingOptions) -> tuple[int, float]:
    """Draw a token as `draw` does, without torch.

    logprobs: `[vocabulary]`, at temperature 1. Returns the token and its logprob under the distribution that
    it is drawn from; that of a greedy row is at temperature 1. Raises ValueError for NaN.
    """
    if np.isnan(logprobs[0]):
        raise ValueError("the model's logits are NaN: check its weights")
    if sampling.temperature == 0:
        token = int(logprobs.argmax())
        return token, float(logprobs[token])
    scaled = logprobs / np.float32(sampling.temperature)
    chances = np.exp(scaled - scaled.max())
    chances /= chances.sum()
    if sampling.truncation:
        order = np.argsort(-chances, kind="stable")
        ordered = chances[order]
        chances[order[ordered.cumsum() - ordered >= sampling.top_p]] = 0
        chances /= chances.sum()
    sums = chances.cumsum()
    token = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
    return token, float(np.log(chances[token]))


class StopStrings:
    """Detects, after each token, whether it completed one of a prompt's stop strings.

    Text is decoded only if the newest token contains the last character of a stop string.
    """

    def __init__(self, strings: Sequence[str], encoder: Encoder) -> None:
        self._strings = tuple(strings)
        self._ends = {string[-1] for string in strings}
        self._encoder = encoder
        self._suspects: dict[int, bool] = {}
        # A token has at least one byte; eight more tokens make up for tokens that decode to nothing.
        self._reach = 8 + max((len(string.encode()) for string in strings), default=0)

    def completed(self, ids: Sequence[int], start: int) -> bool:
        """Return True if the last of `ids` ends a stop string that lies in `ids[start:]`."""
        suspect = self._suspects.get(ids[-1])
        if suspect is None:
            suspect = self._suspects[ids[-1]] = self._suspect(ids[-1])
        if not suspect:
            return False
        tail = self._encoder.decode(ids[max(start, len(ids) - self._reach) :])
        return any(string in tail for string in self._strings)

    def _suspect(self, token: int) -> bool:
        # A token that decodes to nothing, or to part of a character, may complete any string.
        text = self._encoder.decode([token])
        return not text or "\ufffd" in text or any(end in text for end in self._ends)
