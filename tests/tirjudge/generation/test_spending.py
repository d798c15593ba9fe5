"""Spending: the cost of calls is counted, survives a kill, and never exceeds the limit."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import judge, pairs, through, write_rows
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.generation.spending import CostReached, MeteredGenerator, Price, Spending, known_price
from tirjudge_environments import Completion, Context, Finish, Message, Prompt, Usage

PRICE = Price(prompt=1.0, completion=10.0)
ASKED = Context(Prompt(messages=(Message("user", "x" * 36),)))
"""A context of at most 100 tokens, the chat template included."""


def answering(usage: Usage) -> ScriptedGenerator:
    return ScriptedGenerator(lambda context: Completion(text="a", finish=Finish.END, usage=usage))


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    whole = os.write
    with Spending(path) as spending:
        spending.add(Usage(70, 5), 1.0)
        monkeypatch.setattr("tirjudge.generation.spending.os.write", lambda to, text: whole(to, text[:9]))
        with pytest.raises(OSError, match=r"No space left .*calls.jsonl"):
            spending.add(Usage(70, 5), 1.0)
        monkeypatch.undo()
    path.write_bytes(path.read_bytes() + b'{"prompt_to')
    for calls in (1, 2):
        with Spending(path) as spending:
            assert spending.calls == calls
            spending.add(Usage(70, 5), 1.0)


@pytest.mark.parametrize("at_once", [1, 50])
async def test_the_limit_is_never_exceeded_by_concurrent_calls(at_once: int) -> None:
    """A call may take (100 + 10 * 20) / 1e6; it takes 270 / 1e6. Three may fit, a fourth could pass 1e-3."""
    spending = Spending(prices={"m": PRICE}, limit=1e-3)
    most_in_flight = 0

    class Slow(ScriptedGenerator):
        in_flight = 0

        async def generate(self, context: Context, sampling: Sampling) -> Completion:
            nonlocal most_in_flight
            Slow.in_flight += 1
            most_in_flight = max(most_in_flight, Slow.in_flight)
            await asyncio.sleep(0.001)
            Slow.in_flight -= 1
            return await super().generate(context, sampling)

    usage = Usage(70, 20)
    generator = MeteredGenerator(
        Slow(lambda context: Completion(text="a", finish=Finish.END, usage=usage)), spending
    )
    free = asyncio.Semaphore(at_once)

    async def call() -> Completion:
        async with free:
            return await generator.generate(ASKED, Sampling(max_tokens=20))

    ended = await asyncio.gather(*(call() for _ in range(50)), return_exceptions=True)
    refused = [one for one in ended if isinstance(one, CostReached)]
    assert len(refused) == 47
    assert spending.calls == 3
    assert spending.cost is not None
    assert spending.cost <= 1e-3
    assert most_in_flight <= min(at_once, 3)
    assert "0.0008 of 0.001 are spent, and the next call may cost 0.0003" in str(refused[0])


async def test_a_call_without_usage_costs_its_maximum() -> None:
    spending = Spending(prices={"m": PRICE})
    await MeteredGenerator(answering(Usage()), spending).generate(ASKED, Sampling(max_tokens=20))
    assert spending.usage == Usage(100, 20)


async def test_a_failed_call_releases_its_reservation() -> None:
    spending = Spending(prices={"m": PRICE}, limit=3.5e-4)
    failing = MeteredGenerator(ScriptedGenerator([]), spending)
    for _ in range(3):
        with pytest.raises(GeneratorFailed):
            await failing.generate(ASKED, Sampling(max_tokens=20))
    await MeteredGenerator(answering(Usage(1, 1)), spending).generate(ASKED, Sampling(max_tokens=20))
    assert spending.calls == 1


@pytest.mark.parametrize(
    "details",
    [{"prompt_tokens_details": {"cached_tokens": 600}}, {"prompt_cache_hit_tokens": 600}],
    ids=["OpenAI", "DeepSeek"],
)
def test_cached_prompt_tokens_have_their_own_price(
    details: dict[str, Any], tmp_path: Path, endpoint: EndpointServer
) -> None:
    """Two rows of 1,000 prompt tokens, of which 600 are cached, and 100 completion tokens."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, **details}
    endpoint.script = lambda body: chat("<preference>A</preference>") | {"usage": usage}
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    words = (*through(endpoint), "--no-tools", "--price-in", "2", "--price-out", "10", "--json")
    # Prices may change when a run resumes.
    for cached, cost in ((("--price-cached", "0.5"), 2 * (400 * 2 + 600 * 0.5 + 1000) / 1e6), ((), 0.006)):
        run = judge(tmp_path, "rows.jsonl", *words, *cached)
        assert json.loads(run.stdout)["cost"] == pytest.approx(cost)
    assert len(endpoint.asked) == 2
    shown = judge(tmp_path, "rows.jsonl", *words[:-1]).stdout
    assert "2000 tokens read (1200 of them from the provider's cache), 200 written" in shown


def test_a_hosted_models_cached_price_is_known() -> None:
    """OpenAI's price of cached input of GPT-4o mini is half of that of input, 0.15 USD."""
    price = known_price("gpt-4o-mini", "https://api.openai.com/v1")
    assert price is not None
    assert (price.prompt, price.cached) == pytest.approx((0.15, 0.075))


def test_the_time_in_the_queue_is_no_time_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Spending(path) as spending:
        spending.add(Usage(10, 5), 2.0, queued=30.0)
        spending.add(Usage(10, 5), 4.0)
    with Spending(path) as spending:
        assert (spending.seconds, spending.queued, spending.calls) == (6.0, 30.0, 2)
        assert spending.times == "3.0 s each after 15.0 s in the queue"
