"""The scripted generator: the scripted texts, with token ids if it has an encoder."""

from __future__ import annotations

import pytest

from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import By, Completion, Context, Finish, Prompt, Segment
from tirjudge_environments.tokenization import ChatEncoder

EMPTY = Context(Prompt(messages=()))


async def test_a_list_is_played_in_order_and_its_end_is_a_failure() -> None:
    ready = Completion(text="cut", finish=Finish.LENGTH)
    generator = ScriptedGenerator(["first", ready])
    first = await generator.generate(EMPTY, Sampling())
    assert (first.text, first.finish, first.token_ids) == ("first", Finish.END, None)
    assert await generator.generate(EMPTY, Sampling()) is ready
    with pytest.raises(GeneratorFailed, match="no more turns"):
        await generator.generate(EMPTY, Sampling())


async def test_a_function_answers_the_dialogue() -> None:
    generator = ScriptedGenerator(lambda context: f"after {context.segments[-1].text}")
    context = Context(Prompt(messages=()), (Segment(by=By.MODEL, text="this"),))
    assert (await generator.generate(context, Sampling())).text == "after this"


async def test_with_an_encoder_a_turn_has_ids() -> None:
    encoder = ChatEncoder(bpe_tokenizer("some text"))
    completion = await ScriptedGenerator(["some text"], encoder=encoder).generate(EMPTY, Sampling())
    assert encoder.decode(completion.token_ids or ()) == "some text"
    assert len(completion.logprobs or ()) == completion.usage.completion_tokens > 0
