"""The completion cache: equal requests are sent once, and no different request is answered from it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.tirjudge.hub_cache import COMMIT, snapshot
from tirjudge.generation.base import Sampling
from tirjudge.generation.cached import CachedGenerator, CompletionStore
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging import judge_model
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judge_model import local_weights
from tirjudge.judging.options import JudgeOptions
from tirjudge.models.resolve import weights_digest
from tirjudge_environments import By, Completion, Context, Finish, Message, Prompt, Segment, ToolCall, Usage
from tirjudge_environments.types import Later

CONTEXT = Context(Prompt(messages=(Message("user", "Which?"),), stop=("```",)))
SAMPLING = Sampling(temperature=1.0, top_p=0.9, max_tokens=50, seed=3)
ANSWER = Completion(
    text="A \ud800",
    finish=Finish.TOOL_CALL,
    token_ids=(1, 2),
    reasoning="because",
    tool_calls=(ToolCall("c", "run_python", "{}"),),
    usage=Usage(7, 2),
)


class Counting(ScriptedGenerator):
    """A generator that answers with the number of calls so far."""

    def __init__(self, answer: Completion = ANSWER) -> None:
        super().__init__(lambda context: answer)
        self.asked = 0

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        self.asked += 1
        return await super().generate(context, sampling)


def cached(inner: ScriptedGenerator, path: Path, **identity: Any) -> CachedGenerator:
    return CachedGenerator(inner, CompletionStore(path), {"model": "m", **identity})


async def test_a_cached_answer_is_identical_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "cache.sqlite"
    for expected in (1, 0):
        inner = Counting()
        generator = cached(inner, path)
        assert await generator.generate(CONTEXT, SAMPLING) == ANSWER
        assert (inner.asked, generator.hits) == (expected, 1 - expected)
        await generator.close()


async def test_every_input_of_a_judgment_is_part_of_the_cache_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, path = Counting(), tmp_path / "cache.sqlite"
    generator = cached(inner, path)
    said = Segment(by=By.MODEL, text="```python\n1\n```")
    contexts = [
        CONTEXT,
        replace(CONTEXT, prompt=replace(CONTEXT.prompt, messages=(Message("user", "Which? "),))),
        replace(CONTEXT, prompt=replace(CONTEXT.prompt, messages=(Message("system", "Which?"),))),
        replace(CONTEXT, prompt=replace(CONTEXT.prompt, prefill="<think>")),
        replace(CONTEXT, prompt=replace(CONTEXT.prompt, stop=())),
        replace(CONTEXT, segments=(said,)),
        replace(CONTEXT, segments=(said, Segment(by=By.SANDBOX, text="1"))),
        replace(CONTEXT, segments=(said, Segment(by=By.SANDBOX, text="2"))),
        replace(CONTEXT, ids=(1, 2)),
        replace(CONTEXT, ids=(1, 3)),
    ]
    samplings = [
        SAMPLING.model_copy(update={"temperature": 0.9}),
        SAMPLING.model_copy(update={"top_p": 1.0}),
        SAMPLING.model_copy(update={"max_tokens": 51}),
        SAMPLING.model_copy(update={"seed": 4}),
    ]
    questions = [(context, SAMPLING) for context in contexts] + [(CONTEXT, draw) for draw in samplings]
    for number, question in enumerate(questions, 1):
        await generator.generate(*question)
        assert inner.asked == number
    for identity in ({"model": "n"}, {"weights": "abc"}, {"base_url": "http://other"}):
        await cached(inner, path, **identity).generate(CONTEXT, SAMPLING)
    assert inner.asked == len(questions) + 3
    monkeypatch.setattr("tirjudge.generation.cached.ASKED_SINCE", "99")
    await cached(inner, path).generate(CONTEXT, SAMPLING)
    assert inner.asked == len(questions) + 4


async def test_a_greedy_answer_does_not_depend_on_the_seed(tmp_path: Path) -> None:
    inner = Counting()
    generator = cached(inner, tmp_path / "cache.sqlite")
    for seed in (1, 2):
        await generator.generate(CONTEXT, Sampling(seed=seed))
    assert inner.asked == 1


class NewSampling(Sampling):
    """The sampling of a later version."""

    min_p: Annotated[float, Later(0.0)] = 0.1


async def test_a_later_parameter_is_part_of_the_key_only_where_it_is_used(tmp_path: Path) -> None:
    inner = Counting()
    generator = cached(inner, tmp_path / "cache.sqlite")
    given = {"temperature": 1.0, "top_p": 0.9, "max_tokens": 50, "seed": 3}
    for sampling, asked in ((SAMPLING, 1), (NewSampling(**given, min_p=0.0), 1), (NewSampling(**given), 2)):
        await generator.generate(CONTEXT, sampling)
        assert inner.asked == asked


def test_an_invalid_cache_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_text("no database, but text that is long enough to be read as a page")
    with pytest.raises(ValueError, match=r"cannot be used .*--no-cache runs without it") as raised:
        CompletionStore(tmp_path / "cache.sqlite")
    assert "\n" not in str(raised.value)


async def test_a_cache_that_cannot_be_used_is_told_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was loaded would have to be closed again, with its processes."""
    monkeypatch.setenv("TIRJUDGE_CACHE", str(tmp_path))
    monkeypatch.setattr(judge_model, "_generator", lambda *_: pytest.fail("the model was loaded"))
    engine = JudgeEngine(JudgeOptions(model="./m", tools=False, cache=True), weights="w")
    with pytest.raises(ValueError, match="cannot be used"):
        await engine.__aenter__()


def test_a_damaged_cache_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "completions.sqlite3"
    store = CompletionStore(path)
    for number in range(200):
        store.put(b"%d" % number, ANSWER)
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"x" * (len(content) - 4096))
    damaged = CompletionStore(path)
    with pytest.raises(OSError, match=r"^the cache cannot be read \(.*\): --no-cache runs without it$"):
        damaged.get(b"7")
    damaged.close()


def test_the_weights_of_an_adapter_include_a_base_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").write_bytes(b"1")
    snapshot(tmp_path / "base", "owner/name", tmp_path / "hub", monkeypatch)
    (tmp_path / "adapter").mkdir()
    config = {"base_model_name_or_path": "owner/name", "r": 4}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    weights = local_weights(JudgeOptions(model=str(tmp_path / "adapter")))
    assert weights == f"{weights_digest(str(tmp_path / 'adapter'))}-{COMMIT[:16]}"


def test_weights_are_identified_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    (tmp_path / "config.json").write_text("{}")
    before = weights_digest(str(tmp_path))
    assert before == weights_digest(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert weights_digest(str(tmp_path)) != before
    assert weights_digest("owner/name") == ""


async def test_an_answer_with_an_unknown_end_is_not_kept(tmp_path: Path) -> None:
    inner = Counting(replace(ANSWER, finish=Finish.UNKNOWN, finish_word="ponies"))
    generator = cached(inner, tmp_path / "cache.sqlite")
    for asked in (1, 2):
        await generator.generate(CONTEXT, SAMPLING)
        assert inner.asked == asked


async def test_further_fields_of_calls_are_kept(tmp_path: Path) -> None:
    """Without them, a thinking model refuses the turn after its call."""
    call = ToolCall("c", "run_python", "{}", {"extra_content": {"google": {"thought_signature": "x"}}})
    answer = replace(ANSWER, tool_calls=(call,), further={"reasoning_content": "hm"})
    for _ in range(2):
        generator = cached(Counting(answer), tmp_path / "cache.sqlite")
        assert await generator.generate(CONTEXT, SAMPLING) == answer
        await generator.close()
