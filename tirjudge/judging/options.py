"""The options of a judge, declared once for Python, the command line, config files and the servers."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from inspect import Signature
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tirjudge.generation.base import SamplingOptions
from tirjudge.generation.endpoint.openai import Tier
from tirjudge.generation.endpoint.options import EndpointOptions
from tirjudge.generation.spending import FREE, Price, known_price
from tirjudge.judging.abstention import Abstention
from tirjudge.judging.combining import SATISFIED_FROM
from tirjudge.judging.questions import FAMILIES, format_for
from tirjudge.models import is_local_name
from tirjudge.models.resolve import CODER, Undecided, shipped_models
from tirjudge.records.verdicts import Confidence
from tirjudge.storage.run_settings import MOVABLE, Option, hashed, movable, parameters
from tirjudge.storage.settings_text import toml_value
from tirjudge_environments.checkers.file import CheckerFile
from tirjudge_environments.orders import Order
from tirjudge_environments.registry import environment_options, first_fault
from tirjudge_environments.templates import OwnPrompts, prompt_families
from tirjudge_environments.tools.base import ToolSettings
from tirjudge_environments.types import Later
from tirjudge_sandbox import Execution, ImportPolicy, Limits, Program, Sandbox, Status, open_sandbox
from tirjudge_sandbox.base import MIB, OthersSandbox, read_limits
from tirjudge_sandbox.prepared import prepared_digest

KEY_VARIABLES = ("TIRJUDGE_API_KEY", "OPENAI_API_KEY")
"""Environment variables with the key of an endpoint, in order of precedence."""
BASE_URL_VARIABLE = "OPENAI_BASE_URL"
"""Environment variable with the base URL for a model that is not on this machine, if no other is given."""
_SAMPLED = {"temperature": 1.0, "top_p": 0.95}
"""Defaults for several samples of a view (J1, Section 4): greedy samples would all be the same."""
_MODEL = {
    "model",
    "base_url",
    "generator",
    "generator_options",
    "tier",
    "tokenizer",
    "note_of",
    "enable_thinking",
    "request_fields",
}
"""Options that decide which model answers."""
_JURY = ("jury", "vote_weights", "escalate_below")
"""Options of a jury as a whole."""
_OF_ENDPOINTS = ("base_url", "tier", "tokenizer", "note_of", "request_fields", "ask_for_verdict")
_OF_ENGINES = ("generator", "generator_options")
_ASKED = {*_OF_ENGINES, *_OF_ENDPOINTS}
"""Options by which a user chooses engine or endpoint."""
_NOT_OF_CHECKS = ("format", "exact", "tools", "tool", "bindings", "prompts", "criteria_per_call")
"""Options that checks do not have, except with their default values."""
_WORDS = dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)
OF_RUNS = ("abstain_below", "ask_for_verdict", "checkers", "audit", "max_disagreement")
"""Options of `tirjudge judge` alone: open verdicts, verdicts found by another question, and checkers."""


class NoSandbox(OthersSandbox):
    """The sandbox of a judge without programs, which also works where programs cannot be isolated."""

    capacity = 1

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        return Execution(status=Status.SANDBOX_FAILED, detail="this judge was opened without a sandbox")


class SandboxOptions(BaseModel):
    """The sandbox, and the modules that programs may import."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    backend: Annotated[str, Option("Sandbox", "--backend", "NAME"), MOVABLE] = "local"
    """The sandbox that runs the programs."""
    backend_options: Annotated[
        Mapping[str, Any], Option("Sandbox", "--backend-option", "KEY=VALUE"), MOVABLE
    ] = {}
    """An option of the sandbox. Repeatable."""
    program_limits: Annotated[
        Mapping[str, float], Option("Sandbox", "--program-limit", "LIMIT=NUMBER"), Later({})
    ] = {}
    """A limit of each program, such as memory_bytes=1e9 or wall_seconds=60. Repeatable."""
    prepare: Annotated[str, Option("Sandbox", "--prepare", "FILE"), Later("")] = ""
    """A trusted program, or a folder with __main__.py and data, whose names all programs find."""
    import_policy: Annotated[bool, Option("Sandbox", "--import-policy/--no-import-policy")] = False
    """Refuse imports that judging does not need, with a reason that the model can read."""
    allow_weak_isolation: Annotated[
        bool, Option("Sandbox", "--allow-weak-isolation/--no-allow-weak-isolation"), MOVABLE
    ] = False
    """Run programs even where this machine cannot isolate them fully."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        """Name the closest option for an unknown name."""
        for name in given if isinstance(given, Mapping) else ():
            if name not in cls.model_fields:
                close = get_close_matches(str(name), cls.model_fields, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ValueError(f"{name}: there is no such option{hint}")
        return given

    @field_validator("program_limits")
    @classmethod
    def _known(cls, given: Mapping[str, float]) -> Mapping[str, float]:
        read_limits(given)
        return given

    @field_validator("backend_options")
    @classmethod
    def _refuse_prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if "prepare" in given:
            raise ValueError("prepare is an option of its own, which results record: give --prepare FILE")
        return given

    @property
    def limits(self) -> Limits:
        """The limits of each program."""
        return read_limits(self.program_limits)

    def closed_sandbox(self) -> Sandbox:
        """Return the sandbox, not yet open; raises ValueError for an unknown backend or option."""
        # Pass on only what was chosen: not every backend has an import policy or can isolate less.
        options = dict(self.backend_options)
        if self.prepare:
            options["prepare"] = self.prepare
        if self.import_policy:
            options["import_policy"] = ImportPolicy()
        if self.allow_weak_isolation:
            options["allow_weak_isolation"] = True
        return open_sandbox(self.backend, **options)


class JudgeOptions(EndpointOptions, SamplingOptions, SandboxOptions):
    """The options of a judge, such as `JudgeOptions(model="Qwen/Qwen3-8B", samples=5)`.

    Fields are keyword arguments of `Judge`. Result files record the options, so no option holds a key.
    OPENAI_BASE_URL is the address of a named model that is neither on this machine nor run by `generator`.
    """

    model: Annotated[
        str, Option("Model", "--model", "MODEL", "the embedded model", further="jury", common=True)
    ] = ""
    """Folder, GGUF file, hub id, short name, or endpoint's name."""
    jury: tuple[str, ...] = ()
    """Further models that judge every row; the verdict is the vote of all models. Models found on this
    machine by name run here, other models at `base_url`."""
    vote_weights: Annotated[Mapping[str, float], Option("Judging", "--vote-weight", "MODEL=WEIGHT", "1")] = {}
    """Weight of a model's vote in a jury. Repeatable."""
    escalate_below: Annotated[float | None, Option("Judging", "--escalate-below", "X")] = None
    """Ask the next model only where the previous model's verdict has a lower confidence; no vote."""
    generator: Annotated[
        str,
        Option(
            "Model",
            "--generator",
            "NAME",
            "openvino for the embedded model and coder, if installed, else transformers",
        ),
    ] = "transformers"
    """The engine that runs a model in this process."""
    generator_options: Annotated[Mapping[str, Any], Option("Model", "--generator-option", "KEY=VALUE")] = {}
    """An option of the generator. Repeatable."""
    tier: Annotated[Tier, Option("Model", "--tier")] = "auto"
    """The way in which the endpoint continues a dialogue."""
    tokenizer: Annotated[str, Option("Model", "--tokenizer", "MODEL")] = ""
    """Folder or hub id of the endpoint model's tokenizer; tier `completions` needs it."""
    note_of: Annotated[str, Option("Model", "--note-of", "MODEL")] = ""
    """Folder or hub id of a trained judge behind the endpoint, whose prompts and settings apply."""
    enable_thinking: Annotated[
        bool | None,
        Option(
            "Model",
            "--enable-thinking/--no-enable-thinking",
            default="the model folder's own, else the format's; an endpoint's own",
        ),
    ] = None
    """Let the model think before it answers, if its chat template has this switch."""
    format: Annotated[
        str, Option("Judging", "--format", "NAME", "checks or TIR-Judge's, by model and row", common=True)
    ] = ""
    """Judge format: a name that `tirjudge formats` lists."""
    untrained: Annotated[Literal["checks", "tir"], Later("tir")] = "checks"
    """The family of formats of a model without a note of its training, where `format` names none; tir beside
    options that checks do not have, and for rows that checks cannot read."""
    options: Annotated[Mapping[str, Any], Option("Judging", "--option", "KEY=VALUE")] = {}
    """An option of the format. Repeatable."""
    prompts: Annotated[str, Option("Judging", "--prompts", "NAME|FILE", "the model's own, else tir")] = ""
    """Prompts: tir, mini, smol, or a TOML file of your own (docs/judge.md describes it)."""
    shown_chars: Annotated[
        int | None, Field(ge=2), Option("Judging", "--shown-chars", default="the model's own, else whole")
    ] = None
    """Characters of a response that the prompt shows, from both ends; programs find it whole."""
    order: Annotated[
        Order | None,
        Option("Judging", "--order", default="the format's own; random for TIR-Judge's", common=True),
    ] = None
    """Order in which responses are shown together; `both` judges twice."""
    tools: Annotated[bool, Option("Judging", "--tools/--no-tools", common=True)] = True
    """Let the judge run programs; without tools it judges from the text alone."""
    tool: Annotated[list[str], Option("Judging", "--tool", "tests|mcp:COMMAND|URL")] = []
    """A tool for the judge besides Python: run_tests, or the tools of an MCP server. Repeatable."""
    allow_tool: Annotated[list[str], Option("Judging", "--allow-tool", "NAME", "all of the servers")] = []
    """The only tool that the judge may call besides Python. Repeatable."""
    tool_authorization: Annotated[
        Mapping[str, str], Option("Judging", "--tool-authorization", "HOST=VARIABLE"), MOVABLE
    ] = {}
    """Environment variable with the header Authorization for the MCP server at a host. Repeatable."""
    tool_seconds: Annotated[
        float, Field(gt=0, allow_inf_nan=False), Option("Judging", "--tool-seconds", "SECONDS")
    ] = 20.0
    """Maximum seconds for one call of a further tool."""
    tool_bytes: Annotated[int, Field(ge=1), Option("Judging", "--tool-bytes", default="1 MiB")] = MIB
    """Maximum bytes of one answer of a further tool; a longer answer is a failure."""
    bindings: Annotated[bool, Option("Judging", "--bindings/--no-bindings")] = True
    """Define the prompt and the responses as variables of the programs."""
    name_variables: Annotated[
        bool, Option("Judging", "--name-variables/--no-name-variables"), Later(True)
    ] = True
    """Name the programs' variables to a model without a note of its training, also if it replaced one."""
    exact: Annotated[bool, Option("Judging", "--exact/--no-exact")] = False
    """Use nothing beyond the TIR-Judge paper: no bindings, outputs unedited."""
    max_tool_calls: Annotated[int, Field(ge=0), Option("Judging", "--max-tool-calls")] = 3
    """Maximum number of programs and other tool calls, together, in one view."""
    max_tokens: Annotated[
        int | None, Field(ge=1), Option("Judging", "--max-tokens", default="the model's own, else 8192")
    ] = None
    """Tokens of one view after the prompt, program outputs included."""
    ask_for_verdict: Annotated[
        bool, Option("Judging", "--ask-for-verdict/--no-ask-for-verdict"), Later(False)
    ] = False
    """Ask an endpoint once more, for the verdict alone, where no verdict can be read in its answer."""
    samples: Annotated[int, Field(ge=1), Option("Sampling", "--samples")] = 1
    """Samples of every view: the majority decides (self-consistency), scores are means."""
    evidence: Annotated[bool, Option("Judging", "--evidence/--no-evidence"), MOVABLE] = True
    """Run each successful program again with the responses exchanged: did it decide the verdict?"""
    undecided: Annotated[
        Undecided | None,
        Option("Judging", "--undecided", default="the model's own, else guess"),
        Later("guess"),
    ] = None
    """Verdict on a pair or list that no program decided: the judge's guess, or a tie."""
    judge_empty: Annotated[bool, Option("Judging", "--judge-empty/--no-judge-empty"), Later(False)] = False
    """Judge an empty answer of a pair or list as any other; a prompt may ask for silence. Else it loses."""
    judge_thinking: Annotated[
        bool, Option("Judging", "--judge-thinking/--no-judge-thinking"), Later(False)
    ] = False
    """Judge the thinking at the start of a response (`<think>...</think>`) as a part of it."""
    satisfied_from: Annotated[
        float, Field(allow_inf_nan=False), Option("Judging", "--satisfied-from", "SCORE")
    ] = SATISFIED_FROM
    """Lowest score with which a response that is judged alone passes, or satisfies a criterion."""
    criteria_per_call: Annotated[int, Field(ge=1), Option("Judging", "--criteria-per-call")] = 1
    """Criteria of a row that share one dialogue; each criterion gets a separate verdict."""
    checkers: Annotated[str, Option("Judging", "--checkers", "FILE"), Later("")] = ""
    """File of tirjudge compile, whose admitted checkers decide the criteria that they match."""
    audit: Annotated[float, Field(ge=0, le=1), Option("Judging", "--audit", "SHARE"), MOVABLE] = 0.02
    """Share of the rows with checked criteria on which the model is asked as well."""
    max_disagreement: Annotated[
        float | None, Field(ge=0, lt=1), Option("Judging", "--max-disagreement", "SHARE"), MOVABLE
    ] = None
    """Stop once the audit shows, with its interval, that the model disagrees with checkers more often."""
    seed: Annotated[int, Field(ge=0), Option("Sampling", "--seed")] = 0
    """Seed of the orders and of sampling."""

    abstain_below: Annotated[float | None, Option("Judging", "--abstain-below", "X")] = None
    """Leave verdicts open whose confidence is lower; tirjudge score --calibrate chooses X."""
    confidence: Annotated[Confidence | None, Option("Judging", "--confidence", default="vote-share")] = None
    """Confidence of --abstain-below and --escalate-below: share of votes, margin of scores, or evidence."""

    truncate: Annotated[int | None, Field(ge=100), Option("Judging", "--truncate", "CHARACTERS")] = None
    """Cut longer responses in the middle, under a visible mark."""
    price_in: Annotated[
        float | None, Field(ge=0), Option("Cost", "--price-in", "PRICE", "that of genai-prices"), MOVABLE
    ] = None
    """Price of a million prompt tokens, in any currency."""
    price_out: Annotated[
        float | None, Field(ge=0), Option("Cost", "--price-out", "PRICE", "that of genai-prices"), MOVABLE
    ] = None
    """Price of a million completion tokens."""
    price_cached: Annotated[
        float | None,
        Field(ge=0),
        Option("Cost", "--price-cached", "PRICE", "a hosted model's, else --price-in"),
        MOVABLE,
    ] = None
    """Price of a million prompt tokens that the endpoint counts as cached."""
    max_cost: Annotated[
        float | None, Field(ge=0), Option("Cost", "--max-cost", "COST", common=True), MOVABLE
    ] = None
    """Stop before this is exceeded, in the currency of the prices."""
    cache: Annotated[bool, Option("Cost", "--cache/--no-cache", default="no; eval: yes"), MOVABLE] = False
    """Keep completions on disk and reuse them for equal questions."""

    @model_validator(mode="before")
    @classmethod
    def _take_address(cls, given: Any) -> Any:
        """Take the base URL from the environment, unless one is given (an empty one turns this off)."""
        address = os.environ.get(BASE_URL_VARIABLE, "")
        if not address or not isinstance(given, Mapping) or "base_url" in given:
            return given
        local = given.get("generator") or given.get("generator_options")
        names = [given.get("model"), *(given.get("jury") or ())]
        named = any(isinstance(name, str) and name and not is_local_name(name) for name in names)
        return {**given, "base_url": address} if named and not local else given

    @model_validator(mode="before")
    @classmethod
    def _take_fast_engine(cls, given: Any) -> Any:
        """Run the models of this package and `coder` with OpenVINO, unless another engine is asked for."""
        if not isinstance(given, Mapping) or any(given.get(name) for name in _ASKED):
            return given
        fast = find_spec("openvino") or not find_spec("torch")
        names = {given.get("model") or "", *(given.get("jury") or ())}
        known = names <= {"", CODER.name, *shipped_models()}
        return {**given, "generator": "openvino"} if fast and known else given

    @field_validator("options")
    @classmethod
    def _read_words(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read a word such as `False` as formats do: these options are looked at before one is opened."""
        words = {name: str(given[name]).lower() for name in ("exact", "bindings") if name in given}
        return {**given, **{name: _WORDS.get(word, given[name]) for name, word in words.items()}}

    @model_validator(mode="before")
    @classmethod
    def _sample_several(cls, given: Any) -> Any:
        # A temperature or top_p that is given takes precedence over these defaults.
        several = (
            isinstance(given, Mapping) and isinstance(given.get("samples"), int) and given["samples"] > 1
        )
        return {**_SAMPLED, **given} if several else given

    @model_validator(mode="before")
    @classmethod
    def _read_first(cls, given: Any) -> Any:
        """Let an untrained model read the responses first beside an option that checks do not have."""
        if not isinstance(given, Mapping):
            return given
        usual = {name: cls.model_fields[name].default for name in _NOT_OF_CHECKS}
        other = any(given.get(name) not in (None, (), value) for name, value in usual.items())
        return {**given, "untrained": "tir"} if other or given.get("tier") == "tools" else given

    @property
    def tool_settings(self) -> ToolSettings:
        """The tools besides Python; raises ValueError for an address that is none."""
        try:
            return ToolSettings(
                servers=tuple(self.tool),
                allowed=tuple(self.allow_tool),
                authorization=self.tool_authorization,
                wall_seconds=self.tool_seconds,
                output_bytes=self.tool_bytes,
            )
        except ValidationError as error:
            raise ValueError(f"--tool: {first_fault(error)}") from None

    @property
    def judges_thinking(self) -> bool:
        """True if the thinking at the start of a response is a part of it."""
        return self.judge_thinking or self.exact or bool(self.options.get("exact", False))

    @property
    def empty_loses(self) -> bool:
        """True if an empty answer of a pair or list loses without a dialogue."""
        return not (self.judge_empty or self.exact or self.options.get("exact", False))

    @property
    def address_from(self) -> str:
        """The environment variable that gave the base URL; empty if it was an option."""
        taken = self.base_url and self.base_url == os.environ.get(BASE_URL_VARIABLE)
        return BASE_URL_VARIABLE if taken else ""

    def model_identity(self, weights: str) -> dict[str, Any]:
        """Return the fields that identify the model; `weights` is a digest of the model's local files."""
        fields = {name: value for name, value in hashed(self).items() if name in _MODEL}
        return {**fields, "weights": weights}

    def settings(self) -> dict[str, Any]:
        """Return the options that the verdicts of a result file share.

        Options that only say where and how patiently a judge runs (`MOVABLE`) may differ when a run resumes.
        """
        given = self.model_dump(mode="json", exclude=movable(type(self)))
        if self.checkers:
            given["checkers"] = self.checker_file.digest
        if self.prepare:
            given["prepare"] = prepared_digest(self.prepare)
        if own := self.own_prompts:
            content = f"sha256:{sha256(own.model_dump_json().encode()).hexdigest()}"
            place = given["options"] if "prompts" in self.options else given
            place["prompts"] = content
        return given

    @property
    def format_options(self) -> Mapping[str, Any]:
        """The options of the format, with the content of a file in place of its name."""
        own = self.own_prompts if "prompts" in self.options else None
        return {**self.options, "prompts": own} if own else self.options

    @cached_property
    def own_prompts(self) -> OwnPrompts | None:
        """The prompts of a file, read once; None for the name of a family.

        Raises ValueError, in one line, for a bad file and for an unknown name.
        """
        name = str(self.options.get("prompts", self.prompts))
        if not name.endswith(".toml"):
            known, is_ours = prompt_families(), not self.format or self.format.startswith("tir")
            if name and is_ours and name not in known:
                raise ValueError(
                    f"--prompts {name}: give a TOML file, or one of the names {', '.join(known)}"
                )
            return None
        try:
            return OwnPrompts.model_validate(toml_value(Path(name).read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"--prompts {name}: {error.strerror}") from None
        except ValidationError as error:
            raise ValueError(f"--prompts {name}: {first_fault(error)}") from None
        except ValueError as error:
            raise ValueError(f"--prompts {name} is not TOML: {error}") from None

    @property
    def checker_file(self) -> CheckerFile:
        """The checkers that decide; empty without `checkers`.

        Raises ValueError, in one line, for a bad file and for a file without an admitted checker.
        """
        if not self.checkers:
            return CheckerFile()
        file = CheckerFile.read(Path(self.checkers))
        if not file.admitted:
            why = file.unmeasured(self.checkers) or "the file says why"
            count = len(file.checkers)
            raise ValueError(
                f"--checkers {self.checkers}: none of its {count} checkers is admitted, and {why}"
            )
        return file

    @property
    def jurors(self) -> tuple[Self, ...]:
        """The options of each juror alone; without a jury, only these options."""
        if not self.jury:
            return (self,)
        alone = {name: type(self).model_fields[name].get_default(call_default_factory=True) for name in _JURY}
        return tuple(self._juror(name, alone) for name in (self.model, *self.jury))

    def _juror(self, name: str, alone: Mapping[str, Any]) -> Self:
        # An endpoint's options say nothing about a model of this machine, and the reverse.
        of_others = _OF_ENDPOINTS if is_local_name(name) else _OF_ENGINES if self.base_url else ()
        fields = type(self).model_fields
        usual = {other: fields[other].get_default(call_default_factory=True) for other in of_others}
        return self.model_copy(update={**alone, **usual, "model": name})

    @model_validator(mode="after")
    def _check_strictness(self) -> Self:
        if self.ask_for_verdict and self.exact:
            raise ValueError("--exact reads verdicts as the paper does: leave out --ask-for-verdict")
        return self

    @model_validator(mode="after")
    def _check_jury(self) -> Self:
        names = (self.model, *self.jury)
        if self.jury and not all(names):
            raise ValueError("a jury names all its models; the embedded one is tirjudge-smol")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the jury has {name} twice: --samples asks one model several times")
        if not self.jury and (self.vote_weights or self.escalate_below is not None):
            raise ValueError("--vote-weight and --escalate-below need a jury: give several --model")
        if self.vote_weights and self.escalate_below is not None:
            raise ValueError("--vote-weight and --escalate-below exclude each other: only one model decides")
        if self.note_of and sum(bool(one.base_url) for one in self.jurors) > 1:
            raise ValueError("--note-of is about one model: the endpoint serves several of this jury")
        for name, weight in self.vote_weights.items():
            if name not in names:
                raise ValueError(f"--vote-weight {name}: there is no such --model")
            if not 0 < weight < math.inf:
                raise ValueError(f"--vote-weight {name}={weight:g}: a weight is greater than 0, and finite")
        return self

    def prices(self) -> Mapping[str, Price]:
        """Return the price of each model by its name: the one given, else that of a known endpoint.

        A model of this machine costs nothing next to an endpoint with a price. Empty if the price of any
        endpoint's model is not known. Raises ValueError for half of a price, and for a limit without prices.
        """
        if self.price_in is not None and self.price_out is not None:
            given = Price(self.price_in, self.price_out, cached=self.price_cached)
            return {one.model: given if one.base_url or not self.jury else FREE for one in self.jurors}
        if (self.price_in, self.price_out, self.price_cached) != (None, None, None):
            raise ValueError("a cost needs both prices: give --price-in and --price-out")
        hosted = [one for one in self.jurors if one.base_url]
        known = {one.model: known_price(one.model, one.base_url) for one in hosted}
        found = {model: price for model, price in known.items() if price is not None}
        if not found or len(found) < len(hosted):
            if self.max_cost is not None:
                raise ValueError(
                    "a cost needs both prices: give --price-in and --price-out (pip install "
                    "'tirjudge[prices]' knows those of hosted models)"
                )
            return {}
        return {one.model: found.get(one.model, FREE) for one in self.jurors}

    def check_undecided(self) -> None:
        """Raise ValueError, in one line, for ties in place of guesses that nothing could find."""
        if self.undecided == "tie":
            self._require_evidence("--undecided tie")

    def _require_evidence(self, option: str) -> None:
        given = self.options
        exact = self.exact or given.get("exact", False)
        bindings = self.bindings and given.get("bindings", True)
        evidence = self.evidence and given.get("evidence") != "off"
        if exact or not (evidence and self.tools and bindings):
            raise ValueError(
                f"{option} is about programs that are run again: leave out --no-evidence, --no-tools, "
                "--no-bindings and --exact, also as --option"
            )
        if self.format and "evidence" not in environment_options(format_for(self.format, "pairwise")):
            raise ValueError(f"{option}: the format {self.format} runs no program again; leave it out")

    def abstention(self) -> Abstention | None:
        """Return the rule for leaving verdicts open; None without a threshold.

        Raises ValueError, in one line, for a rule that could not leave anything open.
        """
        if self.abstain_below is None and self.escalate_below is None and self.confidence is not None:
            raise ValueError("--confidence belongs to --abstain-below X or --escalate-below X")
        return self._rule("abstain_below", several_votes=bool(self.jury) and self.escalate_below is None)

    def escalation(self) -> Abstention | None:
        """Return the rule for asking the next model; None without a threshold.

        Raises ValueError, in one line, for a rule that could not escalate anything.
        """
        return self._rule("escalate_below", several_votes=False)

    def _rule(self, name: str, *, several_votes: bool) -> Abstention | None:
        below, option = getattr(self, name), f"--{name.replace('_', '-')}"
        if below is None:
            return None
        rule = Abstention(below) if self.confidence is None else Abstention(below, self.confidence)
        if rule.confidence == "evidence":
            self._require_evidence("--confidence evidence")
        if not (0 < below < math.inf if rule.confidence == "margin" else 0 < below <= 1):
            highest = "" if rule.confidence == "margin" else " and at most 1"
            raise ValueError(f"{option} {below:g}: {rule.confidence} needs a number above 0{highest}")
        several_votes = several_votes or self.samples > 1 or "both" in (self.order, self.options.get("order"))
        is_ours = not self.format or self.format.startswith(FAMILIES)
        if rule.confidence == "vote-share" and is_ours and not several_votes:
            raise ValueError(f"a single vote has no share: give --order both or --samples N to {option}")
        return rule


JudgeOptions.__signature__ = Signature(parameters(JudgeOptions))


def endpoint_key(given: str | None = None) -> str | None:
    """Return the key of an endpoint: `given`, else the environment's key, else None."""
    return given or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
