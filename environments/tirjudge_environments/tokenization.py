"""Encoding of prompts and outputs in which untrusted text never becomes a control token."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from tirjudge_environments.types import THINK, Prompt

_CLOSED = "</think>"
_SLOT = "tirjudge-content-{}-slot"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_PROBE = "a b\n c: {1.5}"
_CPU_SECONDS = 5
_WALL_SECONDS = 60
_MEMORY_BYTES = 1 << 30
_LONGEST_TEMPLATE = 1 << 20
"""Characters of a template, and of a rendered dialogue."""
_RENDERING = r"""
import json, resource, sys
from datetime import datetime
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

given = json.load(sys.stdin)
for limit, most in given["limits"].items():
    resource.setrlimit(getattr(resource, limit), (most, most))


class Generation(Extension):
    # A block that marks the model's text for training is rendered as its content.
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def refuse(message):
    raise ValueError(f"it refuses this dialogue: {message}")


def now(layout):
    return datetime.now().strftime(layout)


def to_json(value, ensure_ascii=False, **options):
    # Jinja's own filter escapes characters for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


try:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.globals.update(raise_exception=refuse, strftime_now=now)
    environment.filters["tojson"] = to_json
    text = environment.from_string(given["template"]).render(**given["values"])
    if len(text) > given["longest"]:
        raise ValueError(f"it writes {len(text)} characters")
    found = {"text": text}
except MemoryError:
    found = {"error": f"it takes more than {given['limits']['RLIMIT_AS'] >> 30} GiB"}
except Exception as error:
    found = {"error": str(error).partition("\n")[0] or type(error).__name__}
sys.stdout.write(json.dumps(found))
"""
"""The program that renders a chat template. A stranger's template may loop, or build a text of gigabytes in
one operation that nothing in the same process could interrupt."""
_SWITCH = "enable_thinking"
"""The variable of chat templates that turns thinking on or off."""


def without_surrogates(text: str) -> str:
    """Return a text with U+FFFD in place of lone surrogates, which no tokenizer and no UTF-8 file takes."""
    return _LONE_SURROGATE.sub("\ufffd", text)


class ChatEncoder:
    """An encoder around any Hugging Face fast tokenizer with a chat template.

    The template's own pieces are encoded with the tokenizer's added tokens, all other text without them. The
    template is rendered with placeholders, so its changes to a content (trimming it, removing a think block)
    do not take effect: contents are encoded in full.

    A prompt opens the thinking at most once: a prefill that begins with `<think>` is encoded as that token
    where the tokenizer has one, and is not repeated if the template has opened the thinking itself.
    """

    def __init__(
        self, tokenizer: Any, *, ends: Iterable[int] = (), enable_thinking: bool | None = None
    ) -> None:
        """`tokenizer` is a `PreTrainedTokenizerFast` with a chat template.

        `ends` are further ids that end a turn, such as those of a model's generation config.
        `enable_thinking` turns thinking on or off if the template has that switch, else has no effect; None
        turns thinking on for a prompt whose prefill opens the thinking, and off for any other prompt.

        Raises ValueError if there is no template, if the tokenizer does not keep text as text, and if the
        template opens or closes the thinking whatever `enable_thinking` says.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError("the tokenizer has no chat template")
        given = tokenizer.chat_template
        self._tokenizer, self._template = tokenizer, given if isinstance(given, str) else given["default"]
        self._special_tokens = {name: str(text) for name, text in tokenizer.special_tokens_map.items()}
        self._added = {token.content: token_id for token_id, token in tokenizer.added_tokens_decoder.items()}
        marks = (text for text in self._added if len(text.strip()) > 1 and not text.strip().isalnum())
        self.control_tokens = frozenset(marks) - {THINK, _CLOSED}
        """Texts of added tokens that `quote_control_tokens` quotes for a server that encodes text itself."""
        self._framing, self._plain = within_text(tokenizer.backend_tokenizer, set(self._added))
        self._enable_thinking = enable_thinking
        self._pieces: dict[tuple[tuple[str, ...], bool], tuple[list[list[int]], str]] = {}
        self._around: list[list[int]] | None = None
        """The ids of the chat template around a later turn of the user."""
        self._check_plain()
        self._check_thinking()
        self.end_of_turn = self._find_end_of_turn() | frozenset(ends)
        """Ids that end the model's turn: end of sequence, and the template's end of message."""

    def prompt(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt.

        Raises ValueError for native tools, which only an endpoint can render, if the template does not show
        every content once, in order, and if it closes the thinking that the prefill opens.
        """
        if prompt.tools:
            raise ValueError("native tools cannot be rendered here; use the `fence` protocol")
        pieces, opened = self._pieces_for(prompt)
        ids = list(pieces[0])
        for message, piece in zip(prompt.messages, pieces[1:], strict=True):
            ids += self.text(message.content)
            ids += piece
        prefill = self.opening(prompt).removeprefix(opened)
        # The prefill is the format's text. Only this tag becomes a token, and only as the first of the turn.
        if prefill.startswith(THINK) and THINK in self._added:
            return [*ids, self._added[THINK], *self.text(prefill.removeprefix(THINK))]
        return ids + self.text(prefill)

    def opening(self, prompt: Prompt) -> str:
        """Return the start of the judge's turn that the prompt's ids hold: the open thinking and the prefill.

        With this start as the prefill, the prompt has the same ids. Raises ValueError as `prompt` does.
        """
        _, opened = self._pieces_for(prompt)
        if prompt.prefill.startswith(opened):
            return prompt.prefill
        return opened + prompt.prefill.removeprefix(THINK)

    def text(self, text: str) -> list[int]:
        """Return the ids of plain text; lone surrogates, which no tokenizer accepts, become U+FFFD."""
        ids: list[int] = self._plain.encode(without_surrogates(text), add_special_tokens=False).ids
        return ids

    def turn(self, text: str, before: Sequence[int]) -> list[int]:
        if self._around is None:
            pieces = self._render(("user", "assistant", "user"), bool(self._enable_thinking))[-2:]
            self._around = [self._framing.encode(piece, add_special_tokens=False).ids for piece in pieces]
        ahead, behind = self._around
        # The judge may have ended its turn by itself.
        ended = list(before[-1:]) == ahead[:1]
        return [*ahead[ended:], *self.text(text), *behind]

    def decode(self, ids: Sequence[int]) -> str:
        kept = [token for token in ids if token not in self.end_of_turn]
        text: str = self._tokenizer.backend_tokenizer.decode(kept, skip_special_tokens=False)
        return text

    def _pieces_for(self, prompt: Prompt) -> tuple[list[list[int]], str]:
        """Return the ids of the template's text around the contents, and the thinking that it opened."""
        opens = prompt.prefill.startswith(THINK)
        thinking = opens if self._enable_thinking is None else self._enable_thinking
        # The template sees placeholders for the contents, so its own text depends on nothing else.
        key = tuple(message.role for message in prompt.messages), thinking
        if key not in self._pieces:
            first, *others = self._render(key[0], thinking)
            pieces = [
                # Only the first piece begins the text, where some tokenizers put a space.
                self._tokenizer.encode(first, add_special_tokens=False),
                *(self._framing.encode(piece, add_special_tokens=False).ids for piece in others),
            ]
            self._pieces[key] = pieces, _opened(others[-1])
            if opens and _CLOSED in others[-1]:
                raise ValueError(
                    f"the judge's turn begins with {THINK}, but the chat template closes the thinking before "
                    f"it: {_SWITCH} must be true or left out"
                )
        return self._pieces[key]

    def _render(self, roles: tuple[str, ...], thinking: bool, *, generate: bool = True) -> list[str]:
        slots = [_SLOT.format(position) for position in range(len(roles))]
        messages = [{"role": role, "content": slot} for role, slot in zip(roles, slots, strict=True)]
        options = {_SWITCH: thinking} if _SWITCH in self._template else {}
        rest = rendered(
            self._template, messages, add_generation_prompt=generate, **self._special_tokens, **options
        )
        pieces = []
        for slot in slots:
            if rest.count(slot) != 1:
                raise ValueError(f"the chat template does not show every content once, in order, for {roles}")
            piece, rest = rest.split(slot)
            pieces.append(piece)
        return [*pieces, rest]

    def _find_end_of_turn(self) -> frozenset[int]:
        # Many chat templates end a message with another token than the tokenizer's end of sequence.
        ends = {self._tokenizer.eos_token_id} - {None}
        after_answer = self._render(("user", "assistant"), False, generate=False)[-1]
        ids = self._framing.encode(after_answer, add_special_tokens=False).ids
        return frozenset(ends | (set(ids[:1]) & set(self._added.values())))

    def _check_thinking(self) -> None:
        if self._enable_thinking is None:
            return
        end = self._render(("user",), self._enable_thinking)[-1]
        if self._enable_thinking and _CLOSED in end:
            raise ValueError(
                f"{_SWITCH} is true, but this chat template closes the thinking: it must be false"
            )
        if not self._enable_thinking and _opened(end):
            raise ValueError(
                f"{_SWITCH} is false, but this chat template always opens {THINK}: "
                "it must be true or left out"
            )

    def _check_plain(self) -> None:
        """Check that every added token is encoded as ordinary ids, and that ordinary text is kept."""
        control = set(self._added.values())
        probes = [*self._added, *(f"a {content}b" for content in self._added)]
        for probe, encoded in zip(
            probes, self._plain.encode_batch(probes, add_special_tokens=False), strict=True
        ):
            if control.intersection(encoded.ids):
                raise ValueError(f"this tokenizer cannot keep {probe!r} as plain text")
        if self._tokenizer.backend_tokenizer.decode(self.text(_PROBE), skip_special_tokens=False) != _PROBE:
            raise ValueError("this tokenizer does not give a text back as it was")


class Encoder(Protocol):
    """The interface of a tokenizer that a rollout needs."""

    def prompt(self, prompt: Prompt) -> list[int]:
        """Return the ids of the chat template and the prefill, with the contents encoded as plain text."""

    def opening(self, prompt: Prompt) -> str:
        """Return the start of the judge's turn that those ids hold: an open `<think>`, and the prefill."""

    def text(self, text: str) -> list[int]:
        """Return the ids of plain text, which contain no added token of the tokenizer, special or not."""

    def turn(self, text: str, before: Sequence[int]) -> list[int]:
        """Return the ids of a user's turn behind the judge's turn `before`, and the start of the next turn.

        The text is encoded as plain text.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids without the tokens that end a turn."""


def rendered(template: str, messages: Sequence[dict[str, str]], **values: Any) -> str:
    """Return a dialogue as a template writes it; `values` are further variables of the template.

    Raises ValueError, in one line, for a template that cannot be rendered within 5 s of CPU time and 1 GiB.
    """
    return _rendered(template, json.dumps({"tools": None, "documents": None, **values, "messages": messages}))


@lru_cache(maxsize=64)
def _rendered(template: str, values: str) -> str:
    found = _in_a_child(template, json.loads(values))
    if "error" in found:
        raise ValueError(f"the chat template cannot be rendered: {found['error']}")
    return str(found["text"])


def _in_a_child(template: str, values: dict[str, Any]) -> dict[str, str]:
    if len(template) > _LONGEST_TEMPLATE:
        return {"error": f"it has more than {_LONGEST_TEMPLATE:,} characters"}
    given = {
        "template": template,
        "values": values,
        "longest": _LONGEST_TEMPLATE,
        "limits": {"RLIMIT_CPU": _CPU_SECONDS, "RLIMIT_AS": _MEMORY_BYTES, "RLIMIT_CORE": 0},
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _RENDERING],
            input=json.dumps(given).encode(),
            capture_output=True,
            timeout=_WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it takes more than {_WALL_SECONDS} s"}
    if done.returncode < 0:
        return {"error": f"it takes more than {_CPU_SECONDS} s"}
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return {"error": lines[-1] if lines else f"its process ended with {done.returncode}"}


def _opened(generation_prompt: str) -> str:
    """Return the thinking that the template's last piece opens and does not close, from its tag on."""
    start = generation_prompt.rfind(THINK)
    return "" if start < 0 or _CLOSED in generation_prompt[start:] else generation_prompt[start:]


_PUTS_SPACE_FIRST = {
    "ByteLevel": ("add_prefix_space", False),
    "Metaspace": ("prepend_scheme", "never"),
    "Prepend": ("prepend", ""),
}
"""Tokenizer parts that may put a space before the text, and the setting that prevents it."""


def within_text(backend: Any, added: set[str]) -> tuple[Any, Any]:
    """Return two tokenizers of pieces of a text, which put no space before a piece.

    The first tokenizer knows the added tokens, and is `backend` unless `backend` puts a space before every
    text. The second has neither the added tokens nor merges that would produce added tokens.
    """
    # A large vocabulary takes longer to unpack than to use, so it is unpacked once.
    state = json.loads(backend.to_str())
    framing = _loaded(state) if _drop_first_space(state) else backend
    state["added_tokens"] = []
    model = state["model"]
    if "merges" in model:
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if added.isdisjoint((*pair, "".join(pair)))]
        known = added - {model.get("unk_token")}
        model["vocab"] = {text: number for text, number in model["vocab"].items() if text not in known}
    return framing, _loaded(state)


def _loaded(state: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(
        json.dumps(state | {"post_processor": None, "truncation": None, "padding": None})
    )


def _drop_first_space(state: dict[str, Any]) -> bool:
    """Change the parts in place; return True if there was anything to change."""
    changed = False
    for part in _parts(state):
        name, value = _PUTS_SPACE_FIRST.get(part["type"], ("type", part["type"]))
        changed |= part[name] != value
        part[name] = value
    return changed


def _parts(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the normalizers and pre-tokenizers, including the members of sequences."""
    for part in (state["normalizer"], state["pre_tokenizer"]):
        if part is not None:
            yield from part.get("normalizers") or part.get("pretokenizers") or [part]
