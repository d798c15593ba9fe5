"""The OpenAI-compatible generator against a real HTTP server: the requests and the reading of each tier."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.model_families import tokenizer_of
from tests.tirjudge.endpoint_server import EndpointServer, called, chat, failure
from tirjudge.generation.base import ContextTooLong, GeneratorFailed, Sampling
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import By, Context, Finish, Message, Prompt, Segment, ToolCall, ToolSpec, Usage

PROGRAM = "Let me count.\n```python\nprint(2 + 3)\n```\n"
OUTPUT = "```output\n5\n```\n"
STOP = ("\n```\n", "\n```output")
PROMPT = Prompt(messages=(Message("system", "You judge."), Message("user", "A or B?")), stop=STOP)
RUN_PYTHON = ToolSpec("run_python", "Runs a program.", {"type": "object", "properties": {"code": {}}})
ASKED = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "A or B?"}]
SAMPLING = Sampling(temperature=0.7, max_tokens=64, seed=11)


def by_model(text: str, **more: Any) -> Segment:
    return Segment(by=By.MODEL, text=text, **more)


def by_sandbox(text: str, call_id: str | None = None) -> Segment:
    return Segment(by=By.SANDBOX, text=text, call_id=call_id)


@pytest.fixture
async def generators(server: EndpointServer) -> AsyncIterator[Any]:
    """Return a function that makes generators for the server; they are closed at the end."""
    made = []

    def make(**options: Any) -> OpenAIGenerator:
        made.append(OpenAIGenerator("judge-8b", server.url, **options))
        return made[-1]

    yield make
    for generator in made:
        await generator.close()


async def test_the_first_turn_of_plain_chat(server: EndpointServer, generators: Any) -> None:
    server.answers(chat("<preference>A</preference>", reasoning_content="Hm."))
    completion = await generators().generate(Context(PROMPT), SAMPLING)
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.bodies == [
        {
            "model": "judge-8b",
            "messages": ASKED,
            "temperature": 0.7,
            "max_tokens": 64,
            "seed": 11,
            "stop": list(STOP),
        }
    ]
    assert completion.text == "<preference>A</preference>"
    assert completion.reasoning == "Hm."
    assert completion.finish is Finish.END
    assert completion.usage == Usage(prompt_tokens=7, completion_tokens=3)
    assert completion.token_ids is None
    assert completion.logprobs is None


RAN = [{"role": "assistant", "content": PROGRAM.rstrip()}, {"role": "user", "content": "```output\n5\n```"}]
GO_ON = [
    {"role": "assistant", "content": "First, then"},
    {"role": "user", "content": "Continue exactly where you stopped."},
]


@pytest.mark.parametrize(
    ("segments", "turns"),
    [
        ((by_model(PROGRAM, reasoning="secret thoughts"), by_sandbox(OUTPUT)), RAN),
        ((by_model(PROGRAM + "```output"), by_sandbox("\n5\n```\n")), RAN),
        ((by_model("First,"), by_model(" then")), GO_ON),
    ],
)
async def test_segments_come_as_alternating_turns(
    server: EndpointServer, generators: Any, segments: tuple[Segment, ...], turns: list[dict[str, str]]
) -> None:
    await generators(tier="turns").generate(Context(PROMPT, segments), SAMPLING)
    assert server.bodies[0]["messages"] == [*ASKED, *turns]


async def test_native_calls(server: EndpointServer, generators: Any) -> None:
    prompt = replace(PROMPT, stop=(), tools=(RUN_PYTHON,))
    server.answers(chat(None, "tool_calls", tool_calls=[called("print(2 + 3)")]))
    generator = generators()
    completion = await generator.generate(Context(prompt), SAMPLING)
    (call,) = completion.tool_calls
    assert (completion.text, completion.finish) == ("", Finish.TOOL_CALL)
    assert call == ToolCall("call_a", "run_python", '{"code": "print(2 + 3)"}')

    server.answers(chat("<preference>B</preference>"))
    segments = (by_model("", tool_calls=(call,)), by_sandbox("5", call_id="call_a"))
    completion = await generator.generate(Context(prompt, segments), SAMPLING)
    assert completion.finish is Finish.END
    assert server.bodies[1] == {
        "model": "judge-8b",
        "messages": [
            *ASKED,
            {"role": "assistant", "content": None, "tool_calls": [called("print(2 + 3)")]},
            {"role": "tool", "tool_call_id": "call_a", "content": "5"},
        ],
        "temperature": 0.7,
        "max_tokens": 64,
        "seed": 11,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "run_python",
                    "description": "Runs a program.",
                    "parameters": {"type": "object", "properties": {"code": {}}},
                },
            }
        ],
    }


async def test_calls_without_an_id_or_with_broken_arguments(server: EndpointServer, generators: Any) -> None:
    """Every call gets an id, arguments are text, and a call that was never answered is not sent back."""
    prompt = replace(PROMPT, tools=(RUN_PYTHON,))
    broken = {"id": "", "function": {"name": "run_python", "arguments": '{"code": "pri'}}
    as_object = {"function": {"name": "run_python", "arguments": {"code": "1"}}}
    server.answers(chat(None, "stop", tool_calls=[broken, as_object]))
    completion = await generators().generate(Context(prompt), SAMPLING)
    first, second = completion.tool_calls
    assert completion.finish is Finish.TOOL_CALL
    assert first.id != second.id
    assert json.loads(second.arguments) == {"code": "1"}

    segments = (by_model("Both.", tool_calls=(first, second)), by_sandbox("2", call_id=second.id))
    await generators().generate(Context(prompt, segments), SAMPLING)
    assert server.bodies[1]["messages"][2:] == [
        {"role": "assistant", "content": "Both.", "tool_calls": [called("1", second.id)]},
        {"role": "tool", "tool_call_id": second.id, "content": "2"},
    ]


async def test_a_prefill_is_left_to_the_model(server: EndpointServer, generators: Any) -> None:
    server.answers(chat("<think>Both fail."))
    completion = await generators().generate(Context(replace(PROMPT, prefill="<think>")), SAMPLING)
    assert server.bodies[0]["messages"] == ASKED
    assert completion.text == "Both fail."


@pytest.mark.parametrize("enable_thinking", [True, False])
async def test_a_chat_endpoint_gets_the_thinking_mode(
    server: EndpointServer, generators: Any, enable_thinking: bool
) -> None:
    await generators(enable_thinking=enable_thinking).generate(Context(PROMPT), SAMPLING)
    assert server.bodies[0]["chat_template_kwargs"] == {"enable_thinking": enable_thinking}


def test_an_endpoint_with_token_ids_gets_prompts_in_the_thinking_mode(generators: Any) -> None:
    prompt = Prompt(messages=(Message("user", "A or B?"),))
    tokenizer = tokenizer_of("qwen3")
    for enable_thinking in (True, False):
        encoder = generators(tokenizer=tokenizer, enable_thinking=enable_thinking).encoder
        assert ("</think>" in tokenizer.decode(encoder.prompt(prompt))) is not enable_thinking


CUT = PROGRAM.removesuffix("\n```\n")


@pytest.mark.parametrize(
    ("answer", "text", "finish"),
    [
        (chat(PROGRAM), PROGRAM, Finish.STOP),
        (chat(CUT), PROGRAM, Finish.STOP),
        (chat(CUT, stop_reason="\n```\n"), PROGRAM, Finish.STOP),
        (chat(CUT, stop_reason="\n```output"), CUT + "\n```output", Finish.STOP),
        (chat(PROGRAM, matched_stop="\n```\n"), PROGRAM, Finish.STOP),
        (chat("```json\n{}"), "```json\n{}\n```\n", Finish.STOP),
        (chat("````text\nfour"), "````text\nfour", Finish.END),
        (chat(CUT, "length"), CUT, Finish.LENGTH),
        (chat(PROGRAM.rstrip(), matched_stop=151645), PROGRAM.rstrip(), Finish.END),
        (chat("A", matched_stop="</s>"), "A", Finish.END),
        (chat("A", "length"), "A", Finish.LENGTH),
        (chat(None), "", Finish.END),
        (chat(None, refusal="I cannot."), "I cannot.", Finish.END),
        (chat("A", finish=None), "A", Finish.END),
        (chat([{"type": "text", "text": "A"}, {"type": "image"}]), "A", Finish.END),
    ],
)
async def test_the_end_of_a_turn_is_read(
    server: EndpointServer, generators: Any, answer: dict[str, Any], text: str, finish: Finish
) -> None:
    """Most endpoints cut the stop string off, but the reader needs the text as the model wrote it."""
    server.answers(answer)
    completion = await generators().generate(Context(PROMPT), SAMPLING)
    assert (completion.text, completion.finish) == (text, finish)


async def test_a_stop_string_that_was_cut_off_closes_the_fence_of_an_earlier_completion(
    server: EndpointServer, generators: Any
) -> None:
    server.answers(chat("x = 1"))
    context = Context(PROMPT, (by_model(PROGRAM), by_sandbox(OUTPUT), by_model("```python\n")))
    completion = await generators().generate(context, SAMPLING)
    assert (completion.text, completion.finish) == ("x = 1\n```\n", Finish.STOP)


async def test_a_parameter_that_an_endpoint_refuses_is_left_out_on_request(
    server: EndpointServer, generators: Any
) -> None:
    """Without stop strings nothing is restored, since a text may end anywhere."""
    server.answers(chat("```python\nx = 1"))
    generator = generators(request_fields={"stop": None, "seed": None})
    completion = await generator.generate(Context(PROMPT), SAMPLING)
    assert (completion.text, completion.finish) == ("```python\nx = 1", Finish.END)
    assert server.bodies == [{"model": "judge-8b", "messages": ASKED, "temperature": 0.7, "max_tokens": 64}]


LIMIT = failure(400, "max_tokens is too large: 64. The model supports 32 tokens.", param="max_tokens")


@pytest.mark.parametrize(
    ("field", "most", "refusal", "sent", "warnings"),
    [
        (
            "max_tokens",
            0,
            failure(400, "'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
            {"max_completion_tokens": 64},
            0,
        ),
        ("max_tokens", 32, LIMIT, {"max_tokens": 32}, 1),
        ("seed", 0, failure(400, "Unrecognized request argument supplied: seed"), {}, 1),
    ],
)
async def test_what_an_endpoint_refuses_is_learnt_once(
    server: EndpointServer,
    generators: Any,
    caplog: pytest.LogCaptureFixture,
    field: str,
    most: int,
    refusal: Any,
    sent: dict[str, int],
    warnings: int,
) -> None:
    server.script = lambda body: refusal if body.get(field, 0) > most else chat("A")
    generator = generators()
    for _ in range(2):
        assert (await generator.generate(Context(PROMPT), SAMPLING)).text == "A"
    first, *later = server.bodies
    assert later == [{name: value for name, value in first.items() if name != field} | sent] * 2
    assert len(caplog.records) == warnings


async def test_a_dialogue_that_fills_the_context_gets_the_remaining_tokens(
    server: EndpointServer, generators: Any, caplog: pytest.LogCaptureFixture
) -> None:
    full = "This model's maximum context length is 100 tokens. Use a smaller prompt or max_completion_tokens."

    def room_for_less(body: dict[str, Any]) -> Any:
        return failure(400, full) if "max_tokens" in body else chat("A", "length")

    server.script = room_for_less
    completion = await generators().generate(Context(PROMPT), SAMPLING)
    assert (completion.text, completion.finish) == ("A", Finish.LENGTH)

    server.answers(failure(400, full))
    with pytest.raises(ContextTooLong, match="maximum context length is 100 tokens"):
        await generators().generate(Context(PROMPT), SAMPLING)
    assert not caplog.records


@pytest.mark.parametrize(
    ("further", "written"),
    [
        ({"total_tokens": 110}, 10),
        ({"total_tokens": 310, "completion_tokens_details": {"reasoning_tokens": 200}}, 210),
        ({"total_tokens": 310}, 210),
        ({"total_tokens": 0}, 10),
        ({"total_tokens": 160, "cache_read_input_tokens": 50}, 10),
        ({"total_tokens": 180, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 20}, 10),
    ],
    ids=["OpenAI", "xAI", "Gemini", "no total", "a cache beside the prompt", "a new cache as well"],
)
async def test_thinking_that_only_the_total_counts_is_paid_for(
    server: EndpointServer, generators: Any, further: dict[str, Any], written: int
) -> None:
    server.answers(chat("a") | {"usage": {"prompt_tokens": 100, "completion_tokens": 10, **further}})
    completion = await generators().generate(Context(PROMPT), SAMPLING)
    assert completion.usage.completion_tokens == written


@pytest.mark.parametrize("usage", [None, {}, {"completion_tokens": None}])
async def test_unreported_tokens_are_estimated(
    server: EndpointServer, generators: Any, usage: dict[str, Any] | None
) -> None:
    """Four bytes a token: the prompt has 17, and the answer with its reasoning 16."""
    server.answers(chat("twelve bytes", reasoning="four") | {"usage": usage})
    completion = await generators().generate(Context(PROMPT), SAMPLING)
    assert completion.usage == Usage(prompt_tokens=5, completion_tokens=4)


async def test_reasoning_that_took_all_tokens_is_an_answer_that_was_cut(
    server: EndpointServer, generators: Any
) -> None:
    """OpenAI refuses such a request; the row would fail as if the model were down."""
    refusal = (
        "Could not finish the message because max_tokens or model output limit was reached. "
        "Please try again with higher max_tokens."
    )
    server.answers(failure(400, refusal))
    completion = await generators().generate(Context(PROMPT), SAMPLING)
    assert (completion.text, completion.finish) == ("", Finish.LENGTH)
    assert completion.usage == Usage(prompt_tokens=5, completion_tokens=64)


async def test_hostile_rows_are_sent_unchanged_but_for_control_tokens(
    server: EndpointServer, generators: Any
) -> None:
    prompt = Prompt(messages=(Message("user", "\x00 \ud800 \u202e <|im_end|> 𝔘"),))
    await generators().generate(Context(prompt), SAMPLING)
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "\x00 ? \u202e < |im_end|> 𝔘"}]


async def test_token_ids_exclude_native_tools(generators: Any) -> None:
    generator = generators(tier="completions", tokenizer=tokenizer_of("qwen3"))
    with pytest.raises(GeneratorFailed, match="tier completions has no native tools"):
        await generator.generate(Context(replace(PROMPT, tools=(RUN_PYTHON,))), SAMPLING)


async def test_a_refusal_for_another_reason_costs_no_later_request_a_field(
    server: EndpointServer, generators: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The message of one row mentions a field, and the row is refused without it as well."""
    server.answers(failure(400, "the seed of this conversation is not valid"))
    generator = generators()
    with pytest.raises(GeneratorFailed, match="not valid"):
        await generator.generate(Context(PROMPT), SAMPLING)
    server.answers(chat("A"))
    await generator.generate(Context(PROMPT), SAMPLING)
    assert server.bodies[-1]["seed"] == 11
    assert not caplog.records
