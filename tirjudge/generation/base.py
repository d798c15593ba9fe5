"""The generator interface: a context goes in, one turn of the judge comes out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Signature
from typing import Annotated, Any, Protocol, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.models.machine import LOCAL
from tirjudge.storage.run_settings import Option, parameters
from tirjudge_environments import Completion, Context, Encoder, Usage
from tirjudge_environments.types import Later
from tirjudge_sandbox.registry import Plugins

GENERATORS = Plugins(
    "tirjudge.generators",
    "generator",
    "tirjudge.generation",
    {
        "openvino": "local.openvino:OpenvinoGenerator.load",
        "transformers": "local.processes:load",
        "vllm": "vllm:VllmGenerator.load",
    },
)
"""Each member is called with a model and the options of `open_generator`."""
NEEDED = {
    "openvino": ("fast", ("gguf", "jinja2", "openvino", "tokenizers")),
    "transformers": ("local", LOCAL),
    "vllm": ("vllm", ("vllm",)),
}
"""By generator, the extra that installs it and modules of the extra."""


class SamplingOptions(BaseModel):
    """The parameters by which a token is drawn: options of commands, keys of recipes and fields of requests.

    Each field has its name in OpenAI's API, vLLM and verl. Every default but the temperature's leaves the
    distribution as it is. This is who supports which field:

    | | `transformers`, `openvino` | `vllm` | endpoint | RL with TRL | RL with verl |
    |---|---|---|---|---|---|
    | `temperature` | yes | yes | left out if refused | yes | yes |
    | `top_p` | yes | yes | left out if refused | with `importance_cap` | with `importance_cap` |

    To add a parameter, add a field here, with its neutral value as the default and as `Later(NEUTRAL)`, not
    `hashed`, change the two draws of `local/sampling.py`, and add a row to the table. Commands, `Judge`,
    recipes, endpoints, vLLM and the cache's key read the fields of this class, and RL and verl refuse or
    accept what truncates. An engine without the parameter must refuse it where it reads the fields:
    `vllm.py`, `endpoint/openai.py` and `trl_rollout.py`. docs/judge.md, endpoints.md and training.md list it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    temperature: Annotated[
        float,
        Field(ge=0.0, allow_inf_nan=False),
        Option("Sampling", "--temperature", default="0, which is greedy; 1 for several samples"),
    ] = 0.0
    """0 is greedy; the higher, the more random."""
    top_p: Annotated[
        float,
        Field(gt=0.0, le=1.0),
        Option("Sampling", "--top-p", default="1; 0.95 for several samples"),
        Later(1.0, hashed=True),
    ] = 1.0
    """Nucleus sampling: the probability mass that is kept."""

    @property
    def parameters(self) -> dict[str, float]:
        """The value of each field above, by its name."""
        return {name: getattr(self, name) for name in SamplingOptions.model_fields}

    @property
    def truncation(self) -> dict[str, float]:
        """The parameters in use that leave out unlikely tokens: all but the temperature."""
        used = ((name, getattr(self, name)) for name in NEUTRAL)
        return {name: value for name, value in used if value != NEUTRAL[name]}


NEUTRAL = SamplingOptions().parameters
del NEUTRAL["temperature"]
"""The value of each parameter but the temperature that leaves the distribution as it is."""


class Sampling(SamplingOptions):
    """Sampling parameters of one turn."""

    max_tokens: int = 4096
    """New tokens of this turn."""
    seed: int = 0
    """Seed of one row: the same seed and context give the same completion, whatever else runs."""

    @classmethod
    def of(cls, options: SamplingOptions, *, max_tokens: int) -> Self:
        """Return the sampling of turns under these options."""
        return cls.model_validate({**options.parameters, "max_tokens": max_tokens})


Sampling.__signature__ = Signature(parameters(Sampling))


class GeneratorFailed(RuntimeError):
    """The model or its endpoint could not answer; the message is one line and contains no key.

    A method of `Judge` for a single question raises it; a batch records it as the `Failure` of a row.
    """

    usage = Usage()
    """The tokens of an answer that cannot be used, which are paid for all the same."""


class ContextTooLong(GeneratorFailed):
    """The context leaves the model no room for an answer."""


class PromptCut(ContextTooLong):
    """The endpoint dropped a part of the prompt without saying so, and answered the rest."""


class Withheld(GeneratorFailed):
    """The endpoint's content filter blocked the answer: repeating the request will not help."""


class Generator(Protocol):
    """A model that continues dialogues.

    A generator is stateless for callers, but may keep a context's keys and values for a later context that
    extends the earlier context.
    """

    @property
    def model(self) -> str:
        """The name that result rows carry."""

    @property
    def encoder(self) -> Encoder | None:
        """Encoder of text into this model's token ids; None for an endpoint that takes only text."""

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Generate one turn. Cancelling frees all resources. Raises GeneratorFailed, also ContextTooLong."""

    async def close(self) -> None: ...


class WrappedGenerator:
    """The base class of a generator that asks an inner one, whose model it is."""

    def __init__(self, inner: Generator) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def encoder(self) -> Encoder | None:
        return self._inner.encoder

    async def close(self) -> None:
        await self._inner.close()


def context_ids(context: Context, model: str, most: int) -> list[int]:
    """Return the token ids of a context for a model that takes `most` of them, its answer included.

    Raises GeneratorFailed, also ContextTooLong.
    """
    if context.ids is None:
        raise GeneratorFailed(f"{model} takes token ids: pass this generator's encoder to the session")
    if len(context.ids) >= most:
        raise ContextTooLong(
            f"the context has {len(context.ids)} tokens, but {model} takes {most} including its answer: "
            "shorten the row, or take a model that reads more"
        )
    return list(context.ids)


def open_generator(name: str, model: str, /, *, max_rows: int = 32, **options: Any) -> Generator:
    """Open the generator of this name, registered in the entry-point group `tirjudge.generators`.

    Args:
        name: a generator of this package or of a plug-in.
        model: what the generator loads; the built-in ones take a local folder or a hub id.
        max_rows: at most so many completions are requested at once.
        options: the generator's own. API keys are not among them: they come from the environment.

    Raises GeneratorFailed for a model that cannot be loaded, and ValueError for an unknown name or a bad
    option; the message is one line.
    """
    return cast(Generator, GENERATORS.open(name, model, max_rows=max_rows, **options))


class BusyClock:
    """Measures the wall time in which a generator computes at least one completion.

    One thread works; any thread may read.
    """

    def __init__(self) -> None:
        self.running = 0
        """Pieces of work in progress."""
        # Seconds so far, and the start of the current stretch. A single attribute, so that no thread reads
        # one half of a change.
        self._state: tuple[float, float | None] = (0.0, None)

    @property
    def seconds(self) -> float:
        """Busy seconds so far, the current stretch included."""
        before, since = self._state
        return before if since is None else before + time.perf_counter() - since

    @contextmanager
    def working(self) -> Iterator[None]:
        if not self.running:
            self._state = (self.seconds, time.perf_counter())
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self._state = (self.seconds, None)
