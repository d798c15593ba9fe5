"""The model of a judge: its files, its note, and its generator with a meter and a cache."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tirjudge.generation.base import GENERATORS, NEEDED, Generator, open_generator
from tirjudge.generation.cached import CachedGenerator, CompletionStore, cache_file
from tirjudge.generation.endpoint.http import Retry
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.model_files import Adapter
from tirjudge.generation.spending import MeteredGenerator, Spending
from tirjudge.judging.options import JudgeOptions, endpoint_key
from tirjudge.models import ModelUnavailable, resolve_model
from tirjudge.models.machine import require
from tirjudge.models.resolve import (
    EMBEDDED,
    NOTE_FILE,
    ModelNote,
    NotOnHub,
    Undecided,
    embedded_model,
    model_folder,
    read_note,
    weights_digest,
)
from tirjudge.rollout.callers import FairGenerator

logger = logging.getLogger(__name__)

_MAX_TOKENS = 8192
"""Tokens of one view if neither the options nor the model say otherwise."""


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """An open model."""

    name: str
    """The model's name for result rows."""
    note: ModelNote
    generator: Generator
    endpoint: OpenAIGenerator | None = None
    """The generator without meter and cache; None for a model of this process."""
    cached: CachedGenerator | None = None
    """The generator's cache, if it has one."""

    async def warn(self, options: JudgeOptions) -> None:
        """Warn of tools of the model's training that are missing, and of a note that does not apply."""
        if missing := [tool for tool in self.note.tools if tool not in options.tool]:
            # A stranger may have written the note: it must not name a command to run.
            named = ", ".join(json.dumps(tool) for tool in missing)
            logger.warning("%s says that it was trained with further tools, see --tool: %s", self.name, named)
        if self.endpoint is None or options.note_of:
            return
        # A server may call a model by any name; vLLM's list has the folder or hub id behind it as `root`.
        for name in (self.name, str((await self.endpoint.card()).get("root") or "")):
            if name and read_note(name, download=False).model_fields_set:
                logger.warning(
                    "%s serves the trained judge %s, whose prompts and settings an endpoint does not "
                    "apply: give --note-of %s",
                    options.base_url,
                    name,
                    name,
                )
                return


def open_model(
    options: JudgeOptions,
    spending: Spending,
    stack: AsyncExitStack,
    *,
    by_name: bool = False,
    weights: str | None = None,
    api_key: str | None = None,
    on_retry: Callable[[Retry], None] | None = None,
) -> JudgeModel:
    """Open the model that the options describe; `stack` closes it.

    Calls are booked in `spending`, and a jury's calls `by_name`. `weights` is the result of `local_weights`,
    if the caller has it. Raises GeneratorFailed or ValueError, in one line.
    """
    store = None
    if options.cache:
        # Before the model, since loading one may take minutes.
        store = CompletionStore(cache_file())
        stack.callback(store.close)
    generator, note, name = _generator(options, api_key, on_retry)
    stack.push_async_callback(generator.close)
    endpoint = generator if isinstance(generator, OpenAIGenerator) else None
    # The meter is inside: a cached completion costs nothing.
    metered: Generator = FairGenerator(
        MeteredGenerator(generator, spending, name if by_name else ""), options.concurrency
    )
    cached = None
    if store is not None:
        # Equal names with other weights must not share completions.
        identity = options.model_identity(local_weights(options) if weights is None else weights)
        metered = cached = CachedGenerator(metered, store, identity)
    return JudgeModel(name, note, metered, endpoint, cached)


def local_model(options: JudgeOptions) -> str:
    """Return the folder of the model that runs in this process, see `model_folder`.

    Generators of other packages get `resolve_model(name)`.
    """
    name = options.model or embedded_model()
    if options.generator not in GENERATORS.own:
        return resolve_model(name)
    try:
        return model_folder(name)
    except NotOnHub as error:
        raise ModelUnavailable(
            f"--model {name} is no folder, file or short name, and no hub id that can be reached "
            f"({error.reason}): did you mean --base-url?"
        ) from error


def local_weights(options: JudgeOptions) -> str:
    """Return a digest of the local model's files; empty for an endpoint, and for a jury that of each model.

    That of an adapter includes its base's: the same adapter on another base is another model.
    """
    if options.jury:
        return " ".join(map(local_weights, options.jurors)).strip()
    if options.base_url:
        return ""
    folder = local_model(options)
    adapter = Adapter.of(Path(folder))
    digest = weights_digest(folder)
    return f"{digest}-{weights_digest(model_folder(adapter.base))}" if adapter else digest


def local_note(options: JudgeOptions) -> ModelNote:
    """Return the note of the model that runs in this process; for an endpoint, that of `note_of`, if given.

    Raises ValueError for a `note_of` without a note.
    """
    if not options.base_url:
        return read_note(local_model(options))
    note = read_note(options.note_of) if options.note_of else ModelNote()
    if options.note_of and not note.model_fields_set:
        raise ValueError(f"--note-of {options.note_of}: there is no {NOTE_FILE} of a trained judge")
    return note


def view_tokens(options: JudgeOptions, note: ModelNote) -> int:
    """Return the tokens of one view: as configured, else as the model's note says, else 8192."""
    return options.max_tokens or note.max_tokens or _MAX_TOKENS


def most_tokens(options: JudgeOptions) -> int | list[int]:
    """Return the token limit of a view for the settings of a run; for a jury, one limit per model."""
    each = [view_tokens(one, local_note(one)) for one in options.jurors]
    return each if options.jury else each[0]


def undecided_verdicts(options: JudgeOptions, notes: Iterable[ModelNote]) -> Undecided:
    """Return the outcome of a comparison that no program decided: the option, else that of the models' notes.

    Without evidence no verdict is known to be undecided, so every verdict stays. A jury has ties if the notes
    of all its models say so.
    """
    if not options.evidence:
        return "guess"
    return options.undecided or ("tie" if all(note.undecided == "tie" for note in notes) else "guess")


def _check_note(options: JudgeOptions, note: ModelNote) -> None:
    """Raise ValueError for prompts other than the prompts of the model's training.

    A model that was trained with other prompts judges far worse, and nothing in its verdicts shows why.
    """
    trained = {name: getattr(note, name) for name in ("prompts", "shown_chars")}
    for name, value in trained.items():
        given = getattr(options, name)
        # A note without prompts is not from a training that recorded them.
        if given and given != value and "prompts" in note.model_fields_set:
            flag, usual = name.replace("_", "-"), "whole responses" if value is None else value
            raise ValueError(
                f"this model was trained with {name} = {usual}, not {given}: leave out --{flag}, or "
                f"insist with --format FORMAT --option {name}={given}"
            )


def _generator(
    options: JudgeOptions, api_key: str | None, on_retry: Callable[[Retry], None] | None
) -> tuple[Generator, ModelNote, str]:
    """Open and return the generator, with the model's note and the model's name for result rows."""
    check_model(options)
    note = local_note(options)
    _check_note(options, note)
    thinking = note.enable_thinking if options.enable_thinking is None else options.enable_thinking
    if options.base_url:
        endpoint = options.open_endpoint(
            endpoint_key(api_key),
            on_retry=on_retry,
            tier=options.tier,
            tokenizer=options.tokenizer or None,
            enable_thinking=thinking,
        )
        return endpoint, note, options.model
    folder = local_model(options)
    arguments = {"max_rows": options.concurrency, **options.generator_options}
    if thinking is not None:
        arguments = {"enable_thinking": thinking, **arguments}
    generator = open_generator(options.generator, folder, **arguments)
    return generator, note, options.model or EMBEDDED


def check_model(options: JudgeOptions) -> None:
    """Raise ValueError for options about a model that contradict each other."""
    if options.base_url:
        if options.generator != "transformers" or options.generator_options:
            raise ValueError("--generator runs a model in this process: leave out either it or --base-url")
        if not options.model:
            raise ValueError("an endpoint needs the model's name: give --model")
        if options.ask_for_verdict and options.tokenizer and options.tier in ("auto", "completions"):
            raise ValueError("--ask-for-verdict needs a chat: give --tier turns, or leave out --tokenizer")
        return
    if options.note_of:
        raise ValueError("--note-of is about a model behind an endpoint: give --base-url")
    if options.tier not in ("auto", "completions") or options.tokenizer:
        raise ValueError("--tier and --tokenizer need an endpoint: give --base-url")
    if options.request_fields:
        raise ValueError("--request-field is sent to an endpoint: give --base-url")
    if options.ask_for_verdict:
        raise ValueError("--ask-for-verdict asks a model behind an endpoint: give --base-url")
    GENERATORS.entry(options.generator)
    if options.generator in NEEDED:
        extra, modules = NEEDED[options.generator]
        require("a model in this process", modules, extra)
