"""The tokenizer without transformers encodes and renders as transformers does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.tirjudge.smollm2 import needs_smollm2, use_converted
from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation.local.chat_tokenizer import CONFIG, ChatTokenizer
from tirjudge.generation.local.chat_tokenizer import TEMPLATE as TEMPLATE_FILE
from tirjudge_environments.tokenization import ChatEncoder, rendered

DIALOGUE = (
    {"role": "system", "content": "You judge."},
    {"role": "user", "content": "naïve ¶ 3.14\n\tprint('<|im_end|>')  x {{ 7 * 7 }}"},
    {"role": "assistant", "content": "```python\nprint(1)\n```"},
)
TEMPLATE = (
    "{% for message in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}\n"
    "    {{ message.role | upper }} {{ message | tojson }} {{ eos_token }}\n{% endfor %}\n"
    "{% if enable_thinking %}<think>{% endif %}{{ strftime_now('%Y') }}"
)


def assert_same(folder: Path, messages: Any = DIALOGUE, **options: Any) -> None:
    ours, theirs = ChatTokenizer(folder), AutoTokenizer.from_pretrained(folder)
    text = theirs.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **options)
    named = {**ours.special_tokens_map, **options}
    assert rendered(ours.chat_template or "", messages, add_generation_prompt=True, **named) == text
    assert ours.encode(text, add_special_tokens=False) == theirs.encode(text, add_special_tokens=False)
    assert ours.eos_token_id == theirs.eos_token_id
    assert {id: str(token) for id, token in ours.added_tokens_decoder.items()} == {
        id: str(token) for id, token in theirs.added_tokens_decoder.items()
    }


def assert_same_encoder(folder: Path) -> None:
    encoders = ChatEncoder(ChatTokenizer(folder)), ChatEncoder(AutoTokenizer.from_pretrained(folder))
    assert encoders[0].end_of_turn == encoders[1].end_of_turn
    assert encoders[0].text("a <|im_end|> b") == encoders[1].text("a <|im_end|> b")


@pytest.mark.parametrize("thinking", [True, False])
def test_a_folder_that_transformers_wrote(thinking: bool, tmp_path: Path) -> None:
    tokenizer = bpe_tokenizer("print the answer")
    tokenizer.save_pretrained(tmp_path / "chatml")
    assert_same(tmp_path / "chatml")
    assert_same_encoder(tmp_path / "chatml")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "other")
    assert_same(tmp_path / "other", enable_thinking=thinking)


@pytest.mark.parametrize(
    "template",
    [
        "{% if tools is not none or documents is not none %}T{% endif %}{{ messages | length }}",
        "{% for one in messages %}\n  {% generation %}\n  {% set seen = one.content %}{{ seen }}\n  "
        "{% endgeneration %}\n{{ seen is defined }}{% endfor %}",
    ],
    ids=["variables", "generation"],
)
def test_a_template_finds_what_transformers_offers_it(template: str, tmp_path: Path) -> None:
    tokenizer = bpe_tokenizer("print the answer")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path)
    assert_same(tmp_path)


def test_of_several_templates_with_names_the_default_is_taken(tmp_path: Path) -> None:
    bpe_tokenizer("print the answer").save_pretrained(tmp_path)
    (tmp_path / TEMPLATE_FILE).unlink()
    config = json.loads((tmp_path / CONFIG).read_text())
    config["chat_template"] = [
        {"name": "tool_use", "template": "no"},
        {"name": "default", "template": "{{ messages | length }}"},
    ]
    (tmp_path / CONFIG).write_text(json.dumps(config))
    assert_same(tmp_path)


@pytest.mark.slow
@needs_smollm2
def test_the_base_of_the_embedded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = use_converted(tmp_path / "cache", monkeypatch)
    assert_same_encoder(folder)
    assert_same(folder)
    assert_same(folder, DIALOGUE[1:])


def test_a_template_cannot_reach_python(tmp_path: Path) -> None:
    tokenizer = bpe_tokenizer("print the answer")
    tokenizer.chat_template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"^[^\n]*template[^\n]*$"):
        ChatEncoder(ChatTokenizer(tmp_path))
