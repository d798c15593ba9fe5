"""Sampling: the distribution, the logprobs and the noise, each checked against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tirjudge.generation.base import SamplingOptions
from tirjudge.generation.local.sampling import draw, noise


def drawn(logits: torch.Tensor, uniforms: list[float], temperature: float, top_p: float = 1.0):
    rows = logits.expand(len(uniforms), -1)
    return draw(rows, uniforms, [SamplingOptions(temperature=temperature, top_p=top_p)] * len(uniforms))


def test_token_frequencies_match_the_probabilities() -> None:
    logits = torch.randn(1, 20, generator=torch.Generator().manual_seed(0)) * 2
    grid = [(i + 0.5) / 4000 for i in range(4000)]
    tokens, _ = drawn(logits, grid, 0.7)
    expected = torch.softmax(logits[0].double() / 0.7, -1) * 4000
    assert np.bincount(tokens, minlength=20) == pytest.approx(expected.numpy(), abs=1.0)


def test_logprobs_are_those_of_the_distribution_after_temperature_and_top_p() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    tokens, logprobs = drawn(logits, [0.0, 0.999], 0.5, 0.95)
    # softmax([4, 2, 0, -2]) = [.8650, .1171, .0158, .0021]: the first two reach .95 together.
    assert tokens == [0, 1]
    assert np.exp(logprobs) == pytest.approx([0.880797, 0.119203], abs=1e-6)


def test_top_p_keeps_at_least_the_likeliest_token() -> None:
    tokens, logprobs = drawn(torch.tensor([[0.0, 3.0, 1.0]]), [0.0, 0.5, 0.99999], 1.0, 1e-9)
    assert tokens == [1, 1, 1]
    assert logprobs == [0.0, 0.0, 0.0]


def test_a_greedy_row_takes_the_likeliest_token_in_a_mixed_batch() -> None:
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    greedy, drawn = SamplingOptions(top_p=0.1), SamplingOptions(temperature=1.0)
    tokens, logprobs = draw(logits, [0.1, 0.1, 0.9], [greedy, drawn, drawn])
    assert tokens == [1, 0, 1]
    assert np.exp(logprobs) == pytest.approx([0.731059, 0.268941, 0.731059], abs=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_a_token_of_zero_probability_is_never_drawn(uniform: float) -> None:
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, float("-inf")]])
    tokens, logprobs = drawn(logits, [uniform], 1.0)
    assert tokens[0] in (1, 2)
    assert np.isfinite(logprobs[0])


def test_noise_is_a_function_of_seed_and_position() -> None:
    assert np.array_equal(noise(7, 50), noise(7, 200)[:50])
    assert not np.array_equal(noise(7, 50), noise(8, 50))
    assert np.array_equal(noise(-1, 5), noise((1 << 64) - 1, 5))
    assert noise(3, 100_000).mean() == pytest.approx(0.5, abs=0.005)
    assert noise(3, 100_000).max() <= 1 - 2**-24


def test_nan_logits_are_an_error() -> None:
    logits = torch.zeros(2, 20)
    logits[1, 7] = float("nan")
    with pytest.raises(ValueError, match="logits are NaN"):
        draw(logits, [0.5, 0.5], [SamplingOptions(temperature=1.0)] * 2)
