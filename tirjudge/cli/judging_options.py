"""The options of every command that opens a judge: the model, the format, how it draws."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from tirjudge.judging import JudgeConfig

_SAMPLED_TEMPERATURE, _SAMPLED_TOP_P = 1.0, 0.95
"""Where several samples are drawn (J1, Section 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingOptions:
    """As they were typed; `taking` gives them to a command."""

    format: Annotated[str, typer.Option(help="Another judge, by the name that `tirjudge formats` lists.")] = (
        ""
    )
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of the format, as often as needed.")
    ] = None
    model: Annotated[
        str, typer.Option(help="Folder, hub id, or an endpoint's name for it. Default: the embedded model.")
    ] = ""
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint.")] = ""
    generator: Annotated[str, typer.Option(metavar="NAME", help="What runs a model on this machine.")] = (
        "transformers"
    )
    generator_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of the generator, as often as needed.")
    ] = None
    tier: Annotated[
        Literal["auto", "completions", "continue", "turns", "tools"],
        typer.Option(help="How the endpoint is spoken to."),
    ] = "auto"
    tokenizer: Annotated[str, typer.Option(help="The endpoint model's, for tier completions.")] = ""
    prompts: Annotated[str, typer.Option(help="Family of prompts. Default: the model's own, or tir.")] = ""
    order: Annotated[
        Literal["both", "random", "given"] | None,
        typer.Option(
            help="How responses are shown; both judges twice. Default: random, or the format's own."
        ),
    ] = None
    no_tools: Annotated[bool, typer.Option("--no-tools", help="No programs: judge from the text.")] = False
    no_bindings: Annotated[
        bool, typer.Option("--no-bindings", help="Programs do not find the prompt and responses defined.")
    ] = False
    exact: Annotated[bool, typer.Option("--exact", help="Nothing beyond the TIR-Judge paper.")] = False
    max_tool_calls: Annotated[int, typer.Option(help="Programs in one view.")] = 3
    samples: Annotated[int, typer.Option(help="Draws of every view; most of them decide.")] = 1
    temperature: Annotated[
        float | None, typer.Option(help="0 is greedy. Default: 0, of several samples 1.")
    ] = None
    top_p: Annotated[float | None, typer.Option(help="Default: 1, of several samples 0.95.")] = None
    max_tokens: Annotated[int, typer.Option(help="Written in one view, outputs included.")] = 8192
    seed: Annotated[int, typer.Option(help="For the orders, and for draws.")] = 0
    concurrency: Annotated[int, typer.Option(min=1, help="Rows, and requests, at once.")] = 32
    backend: Annotated[str, typer.Option(metavar="NAME", help="Which sandbox runs the programs.")] = "local"
    backend_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of the sandbox, as often as needed.")
    ] = None
    policy: Annotated[
        bool, typer.Option("--policy", help="Refuse programs that import what judging does not take.")
    ] = False
    allow_weak_isolation: Annotated[
        bool, typer.Option("--allow-weak-isolation", help="Run programs even where they cannot be isolated.")
    ] = False

    def config(self) -> JudgeConfig:
        """Raises ValidationError, and ValueError in one line."""
        sampled = self.samples > 1
        return JudgeConfig(
            model=self.model,
            base_url=self.base_url,
            generator=self.generator,
            generator_options=_assigned("generator-option", self.generator_option),
            tier=self.tier,
            tokenizer=self.tokenizer,
            prompts=self.prompts,
            format=self.format,
            options=_assigned("option", self.option),
            order=self.order,
            tools=not self.no_tools,
            bindings=not self.no_bindings,
            exact=self.exact,
            max_tool_calls=self.max_tool_calls,
            max_tokens=self.max_tokens,
            temperature=_given(self.temperature, _SAMPLED_TEMPERATURE if sampled else 0.0),
            top_p=_given(self.top_p, _SAMPLED_TOP_P if sampled else 1.0),
            samples=self.samples,
            seed=self.seed,
            concurrency=self.concurrency,
            backend=self.backend,
            backend_options=_assigned("backend-option", self.backend_option),
            policy=self.policy,
            allow_weak_isolation=self.allow_weak_isolation,
        )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _assigned(name: str, assignments: Iterable[str] | None) -> dict[str, Any]:
    """A value is JSON where it can be read so (true, 0.5, {"math": true}), else the text itself."""
    options: dict[str, Any] = {}
    for assignment in assignments or ():
        key, equals, value = assignment.partition("=")
        if not key or not equals:
            raise ValueError(f"--{name} {assignment!r}: write KEY=VALUE")
        try:
            options[key] = json.loads(value)
        except (ValueError, RecursionError):
            options[key] = value
    return options
