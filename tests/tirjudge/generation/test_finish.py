"""Finish reasons in the spellings of providers, and the fewest tokens of a prompt."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from tests.tirjudge.smollm2 import needs_smollm2
from tirjudge.generation.endpoint.answers import ChatAnswer
from tirjudge.generation.endpoint.finish import Ending, ending
from tirjudge.generation.endpoint.prompt_counts import fewest_tokens
from tirjudge.models import resolve_model

WORDS = {
    # OpenAI, Anthropic, Cohere, TGI, Gemini, Vertex, Bedrock, Mistral
    Ending.WHOLE: "stop STOP end_turn stop_sequence tool_calls tool_use function_call COMPLETE eos eos_token "
    "FinishReason.STOP FINISH_REASON_STOP endTurn toolUse complete stopped null done",
    Ending.CUT: "length LENGTH MAX_TOKENS max_tokens FinishReason.MAX_TOKENS maxTokens model_length "
    "model_context_window_exceeded ERROR_LIMIT max_output_tokens max_completion_tokens length_capped "
    "context_length_exceeded token_limit",
    Ending.WITHHELD: "content_filter CONTENT_FILTER contentFiltered SAFETY FinishReason.SAFETY RECITATION "
    "BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY sensitive refusal guardrail_intervened ERROR_TOXIC "
    "content_filter:RECITATION content_filter:PROHIBITED_CONTENT nsfw_content moderation blocked "
    "policy_violation",
    Ending.FAILED: "network_error insufficient_system_resource error ERROR abort aborted OTHER cancelled "
    "timeout server_error MALFORMED_FUNCTION_CALL function_call_filter:MALFORMED_FUNCTION_CALL "
    "UNEXPECTED_TOOL_CALL load unload overloaded internal_error disconnected",
    Ending.UNKNOWN: "ponies pause_turn 7 LANGUAGE FINISH_REASON_UNSPECIFIED",
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_finish_reason_means_the_same_in_every_spelling(kind: Ending) -> None:
    for word in WORDS[kind].split():
        assert ending(word) is kind, word


def test_the_reason_of_the_provider_behind_a_gateway_counts_where_it_is_worse() -> None:
    def of(reason: str, native: str) -> Ending:
        choice = {"message": {}, "finish_reason": reason, "native_finish_reason": native}
        return ChatAnswer.model_validate({"choices": [choice]}).choices[0].ending[0]

    assert of("stop", "STOP") is Ending.WHOLE
    assert of("stop", "SAFETY") is Ending.WITHHELD
    assert of("stop", "a word of its own") is Ending.WHOLE
    assert of("length", "stop") is Ending.CUT


TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog, and nobody was surprised at all. " * 30,
    "code": "def f(x):\n        return [len(y) for y in x.split()]\n\n" * 30,
    "numbers": "3.14159 2.71828 1.41421 | 100000 | -5\n" * 30,
    "letters": "a b c d e f g h i j " * 60,
    "rules": ("=" * 200 + "\n") * 30,
    "spaces": "x" + " " * 5000 + "y",
    "Chinese": "请判断哪一个回答更好，并说明理由。" * 40,
    "Korean": "어느 답이 더 나은지 판단하세요. " * 40,
    "German": "Donaudampfschifffahrtsgesellschaft und Rechtsschutzversicherungen " * 30,
    "emoji": "\U0001f600\U0001f680 " * 100,
}


@needs_smollm2
def test_no_tokenizer_reads_fewer_tokens_than_the_bound() -> None:
    """Otherwise an honest count would fail a row."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smol"))
    for name, text in TEXTS.items():
        read = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        assert fewest_tokens(text) <= read, name
    # It is close enough to find a cut prompt.
    read = len(tokenizer(TEXTS["prose"])["input_ids"])
    assert fewest_tokens(TEXTS["prose"]) > 0.7 * read
