"""A model folder's tokenizer and chat template without transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"


class ChatTokenizer:
    """The part of transformers' `PreTrainedTokenizerFast` that `ChatEncoder` needs.

    The template is rendered in an immutable sandbox, as transformers renders it.
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError, ValueError and any error of the libraries for a folder without a readable one."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        self.backend_tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.added_tokens_decoder = self.backend_tokenizer.get_added_tokens_decoder()
        template = folder / TEMPLATE
        self.chat_template: str | None = _default(config.get("chat_template"))
        if template.is_file():
            self.chat_template = template.read_text(encoding="utf-8")
        self._named = {key: _content(value) for key, value in config.items() if key.endswith("_token")}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_blocks()]
        )
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        # Jinja's own filter escapes characters for HTML, and transformers replaces it too.
        environment.filters["tojson"] = _to_json
        self._template = environment.from_string(self.chat_template or "")

    @property
    def eos_token_id(self) -> int | None:
        token: int | None = self.backend_tokenizer.token_to_id(self._named.get("eos_token", ""))
        return token

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        **options: Any,
    ) -> str:
        """Return the rendered text; `tokenize` must be False."""
        assert not tokenize
        return self._template.render(
            messages=messages,
            # transformers defines both names, and some templates only test for none.
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **self._named,
            **options,
        )


def _default(template: Any) -> str | None:
    """Return the template of a config; from a list of named templates, the template called `default`."""
    if not isinstance(template, list):
        return None if template is None else str(template)
    return next((str(one["template"]) for one in template if one["name"] == "default"), None)


def _generation_blocks() -> Any:
    """Return a Jinja extension for blocks that mark the model's text in templates, for training.

    As in transformers, a block is rendered as its content.
    """
    from jinja2 import nodes
    from jinja2.ext import Extension

    class GenerationBlocks(Extension):
        tags = {"generation"}  # noqa: RUF012 (Jinja reads it from the class)

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    return GenerationBlocks


def _content(token: Any) -> str:
    """Return the text of a token, which some configs wrap with its properties."""
    return str(token["content"] if isinstance(token, dict) else token or "")


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"the chat template refuses this dialogue: {message}")


def _now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(value: Any, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **options)
