"""The Python interface: `Judge(...).compare`, `.score`, `.rank` and `.batch`, each also asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import Signature, cleandoc, signature
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from tirjudge.generation.base import Generator, GeneratorFailed
from tirjudge.generation.spending import Spending
from tirjudge.judging.batch import Plan
from tirjudge.judging.batch_result import BatchResult, OnProgress, judge_rows
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.options import JudgeOptions
from tirjudge.judging.questions import (
    Conversation,
    Criteria,
    Kind,
    kind_for,
    listed_rows,
    numbered,
    question,
    truncated,
)
from tirjudge.progress import ProgressReporter, say, show_rows
from tirjudge.selection.group_rewards import GroupJudge, GroupOptions, GroupRewards
from tirjudge.storage.run_settings import parameters
from tirjudge_environments import StopReason
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import Columns
from tirjudge_sandbox import Sandbox, SandboxUnavailable
from tirjudge_sandbox.blocking import EventLoopThread, Work

T = TypeVar("T")
P = ParamSpec("P")


class _Arguments(JudgeOptions):
    """The arguments of `Judge`: its options, and the objects and the secret that no file of options holds."""

    # Only its signature is used: nothing is validated.
    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    model: str = Field("", kw_only=False)
    base_url: str | None = Field(None, kw_only=False)  # type: ignore[assignment]
    generator: Generator | str | None = None  # type: ignore[assignment]
    """The name of the engine that runs the model, or an object in place of the model, which is left open."""
    sandbox: Sandbox | None = None
    """A sandbox in place of `backend`. It must not be open: it is opened and closed with the judge."""
    api_key: str | None = None
    """The endpoint's key; without it, TIRJUDGE_API_KEY or OPENAI_API_KEY has it."""


def _taking(
    arguments: Callable[P, _Arguments],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a method the named and typed arguments of `_Arguments`, also in its signature and docstring."""

    def taking(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        own = {one.name: one for one in signature(method).parameters.values()}
        named = [one for one in parameters(_Arguments) if one.name not in ("model", "base_url")]
        shown = [own["self"], own["model"], own["base_url"], *named]
        method.__signature__ = Signature(shown, return_annotation=None)  # type: ignore[attr-defined]
        fields = {**JudgeOptions.model_fields, **_Arguments.model_fields}
        texts = {
            name: (field.description or JudgeOptions.model_fields[name].description or "")
            for name, field in fields.items()
        }
        described = [f"    {one.name}: {' '.join(texts[one.name].split())}" for one in shown[1:]]
        method.__doc__ = "\n".join([cleandoc(method.__doc__ or ""), "", "Args:", *described])
        return method

    return taking


class Judge:
    """A judge that may run programs before it answers.

    ```python
    with Judge(model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1") as judge:
        result = judge.compare("Name a prime above 10.", "11", "12")
        result.verdict, result.choice      # "A", 0
    ```

    `compare`, `score`, `rank` and `batch` block, and also work inside a running event loop (a notebook);
    `acompare`, `ascore`, `arank` and `abatch` are awaited. All work runs in one thread of the judge, and
    concurrent calls run concurrently. The judge opens at the first call; close it, or use it as a context
    manager. `tirjudge judge --help-all` explains the options.

    If the model or the sandbox fails, a single call raises GeneratorFailed or SandboxUnavailable, and a batch
    records the failure of the row. A judge that ends without a readable verdict did answer: its Judgment has
    no verdict, and its `stop` and `detail` say why.
    """

    spending: Spending
    """Calls, tokens, seconds and, with prices, the cost since the judge was created."""
    options: JudgeOptions
    """The model, the arguments and the defaults of everything else."""

    @_taking(_Arguments)
    def __init__(
        self,
        model: str = "",
        base_url: str | None = None,
        *,
        generator: Generator | str | None = None,
        sandbox: Sandbox | None = None,
        api_key: str | None = None,
        **options: Any,
    ) -> None:
        """Take the options of JudgeOptions, by name; without a model the embedded one judges.

        With `abstain_below`, verdicts whose `confidence` is lower are left open: the Judgment has no verdict,
        its `stop` is `abstained`, and its `confidence` has the value and the verdict that was withheld.

        Without a `base_url`, OPENAI_BASE_URL is used for a named model that is not on this machine.

        A `format` other than TIR-Judge's fixes the number of responses: the methods raise ValueError for
        another number. With `max_cost` they raise CostReached instead of exceeding it.

        Raises ValueError, in one line, for an invalid option and for a name that is no option.
        """
        if isinstance(generator, str):
            # A name is one of the options; an object replaces the generator that they describe.
            options["generator"], generator = generator, None
        if base_url is not None:
            options["base_url"] = base_url
        try:
            self.options = JudgeOptions(model=model, **options)
        except ValidationError as error:
            raise ValueError(first_fault(error)) from None
        if generator is not None and self.options.cache:
            raise ValueError("cache needs a model's name: completions of a generator object are not cached")
        self.spending = Spending(prices=self.options.prices(), limit=self.options.max_cost)
        self._engine = JudgeEngine(
            self.options, generator=generator, sandbox=sandbox, spending=self.spending, api_key=api_key
        )
        self._groups: GroupJudge | None = None
        self._thread: EventLoopThread | None = None
        self._starting = threading.Lock()
        """Held while the thread is started, which only one of several concurrent first calls may do."""
        self._opening: asyncio.Lock | None = None
        self._opened = False

    def compare(
        self,
        prompt: Conversation,
        a: Conversation,
        b: Conversation,
        *,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> Judgment:
        """Choose the better of two responses.

        With `criteria` each is judged in a dialogue of its own: `.criteria` has the verdicts, `.scores` the
        aggregates from 0 to 1, and the higher aggregate is the choice. The judge is shown a `reference`.

        Raises TypeError for arguments of another type, ValueError for an invalid prompt or criterion,
        GeneratorFailed or SandboxUnavailable if the model or the sandbox fails, and as `open` does.
        """
        return self._loop().run(self._judge(prompt, {"a": a, "b": b}, "pairwise", criteria, reference))

    def score(
        self,
        prompt: Conversation,
        response: Conversation,
        *,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> Judgment:
        """Score one response: `.score` from 1 to 10, or with criteria (see `compare`) from 0 to 1."""
        return self._loop().run(self._judge(prompt, {"response": response}, "pointwise", criteria, reference))

    def rank(
        self,
        prompt: Conversation,
        responses: Sequence[Conversation],
        *,
        pointwise: bool = False,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> Judgment:
        """Choose the best response; with `pointwise` each is scored alone, and `.ranking` orders all.

        Criteria and reference are as for `compare`; with criteria, `.ranking` orders all by their aggregates.
        A `format` of the judge decides itself how responses are shown, and excludes `pointwise`.
        """
        kind = self._chosen("pointwise" if pointwise else None)
        return self._loop().run(self._judge(prompt, numbered(responses), kind, criteria, reference))

    def batch(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        kind: Kind | None = None,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        progress: bool | OnProgress = False,
    ) -> BatchResult:
        """Judge many rows concurrently; the result has one Judgment or Failure per row, in their order.

        Args:
            rows: mappings with a `prompt`, `responses` and, if any, a `label`, a `reference` and `criteria`,
                as in a file of rows; or a table of pandas, polars or pyarrow with these columns.
            kind: `pointwise`, `pairwise` or `listwise`; None decides by each row's number of responses, or
                by the `format` of the judge, which excludes any other value.
            columns: part of a row to its column, such as {"prompt": "question"}.
            labels: meaning of the label values, such as {"1": "A", "2": "B", "0": "tie"}.
            progress: True shows a line on standard error; a function is called with the rows done and all.

        A row that cannot be judged is a Failure with the reason, and finished rows are kept. After 50
        consecutive failures of the model or the sandbox, and at the cost limit, the other rows are not tried.
        Raises NoRowJudged if no row could be judged, TypeError for rows that are none, ValueError for unknown
        columns, and as `open` does.
        """
        return self._loop().run(self._judge_all(rows, kind, columns, labels, progress))

    def reward_group(
        self,
        prompt: Conversation,
        completions: Sequence[Conversation],
        options: GroupOptions = GroupOptions(),
        *,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> GroupRewards:
        """Compare completions of one prompt, and return a reward for each.

        Criteria and reference are as for `compare`, and belong to every comparison.

        Raises TypeError for arguments of another type, ValueError for an invalid prompt, a group of one, an
        unknown method and a budget that is too small, and GeneratorFailed or SandboxUnavailable as `compare`
        does. Questions that were asked before, until the judge is closed, are not asked again. A comparison
        that `abstain_below` leaves open has no influence on a reward, like one without a verdict.
        """
        return self._loop().run(self._reward_group(prompt, completions, options, criteria, reference))

    async def acompare(
        self,
        prompt: Conversation,
        a: Conversation,
        b: Conversation,
        *,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> Judgment:
        """Choose the better of two responses, as `compare` does."""
        return await self._await(self._judge(prompt, {"a": a, "b": b}, "pairwise", criteria, reference))

    async def ascore(
        self,
        prompt: Conversation,
        response: Conversation,
        *,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> Judgment:
        """Score one response, as `score` does."""
        return await self._await(
            self._judge(prompt, {"response": response}, "pointwise", criteria, reference)
        )

    async def arank(
        self,
        prompt: Conversation,
        responses: Sequence[Conversation],
        *,
        pointwise: bool = False,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> Judgment:
        """Choose the best response or rank all responses, as `rank` does."""
        kind = self._chosen("pointwise" if pointwise else None)
        return await self._await(self._judge(prompt, numbered(responses), kind, criteria, reference))

    async def areward_group(
        self,
        prompt: Conversation,
        completions: Sequence[Conversation],
        options: GroupOptions = GroupOptions(),
        *,
        criteria: Criteria | None = None,
        reference: str = "",
    ) -> GroupRewards:
        """Compare completions of one prompt, as `reward_group` does."""
        return await self._await(self._reward_group(prompt, completions, options, criteria, reference))

    async def abatch(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        kind: Kind | None = None,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        progress: bool | OnProgress = False,
    ) -> BatchResult:
        """Judge many rows concurrently, as `batch` does."""
        return await self._await(self._judge_all(rows, kind, columns, labels, progress))

    def open(self) -> Self:
        """Load the model and start the sandbox now.

        Raises GeneratorFailed, SandboxUnavailable or ValueError, each with one line that says what to do.
        """
        self._loop().run(self._ready())
        return self

    def close(self) -> None:
        """Free the model, end the sandbox and the thread; a later call opens them again."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._shut())
            thread.close()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            # Without this the thread would stay, since there is no `__exit__`.
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self._await(self._ready())
        except BaseException:
            await asyncio.to_thread(self.close)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _chosen(self, kind: Kind | None) -> Kind | None:
        """Return a kind that the caller chose; raises ValueError if the judge has a format."""
        if kind is not None and self.options.format:
            raise ValueError(f"{kind} and the judge's format {self.options.format} exclude each other")
        return kind

    async def _await(self, work: Work[T]) -> T:
        """Run work in the judge's own event loop."""
        return await asyncio.wrap_future(self._loop().submit(work))

    async def _judge(
        self,
        prompt: Conversation,
        responses: Mapping[str, Conversation],
        kind: Kind | None,
        criteria: Criteria | None,
        reference: str,
    ) -> Judgment:
        """Judge one question; `responses` has them by the names that messages use."""
        task = question(prompt, responses, criteria, reference)
        await self._ready()
        judgment = await self._engine.judge(
            truncated(task, self.options.truncate, thinking=self.options.judges_thinking),
            kind or kind_for(task),
        )
        if judgment.stop is StopReason.SANDBOX_DOWN:
            raise SandboxUnavailable(judgment.detail)
        if judgment.stop.down:
            raise GeneratorFailed(judgment.detail)
        return judgment

    async def _reward_group(
        self,
        prompt: Conversation,
        completions: Sequence[Conversation],
        options: GroupOptions,
        criteria: Criteria | None,
        reference: str,
    ) -> GroupRewards:
        task = question(prompt, numbered(completions, "completions"), criteria, reference)
        await self._ready()
        assert self._groups is not None
        return await self._groups.rewards(task, options)

    async def _judge_all(
        self,
        rows: Iterable[Mapping[str, Any]],
        kind: Kind | None,
        columns: Mapping[str, str] | None,
        labels: Mapping[str, str] | None,
        progress: bool | OnProgress,
    ) -> BatchResult:
        given = listed_rows(rows)
        plan = Plan(
            kind=self._chosen(kind),
            columns=Columns.parse(f"{part}={place}" for part, place in (columns or {}).items()),
            # Tables often hold labels as numbers.
            labels=labels
            and {str(value): "" if meaning is None else str(meaning) for value, meaning in labels.items()},
            truncate=self.options.truncate,
            thinking=self.options.judges_thinking,
            concurrency=self.options.concurrency,
        )
        line = partial(show_rows, ProgressReporter(say, unit="rows judged"))
        shown = progress if callable(progress) else line if progress else lambda done, total: None
        await self._ready()
        return await judge_rows(self._engine, given, plan, shown)

    def _loop(self) -> EventLoopThread:
        with self._starting:
            if self._thread is None:
                # The lock belongs to the loop of the new thread.
                self._opening, self._opened = asyncio.Lock(), False
                self._thread = EventLoopThread("tirjudge-judge")
            return self._thread

    async def _ready(self) -> None:
        assert self._opening is not None
        async with self._opening:
            if not self._opened:
                await self._engine.__aenter__()
                self._groups = GroupJudge(self._engine, self.options.truncate)
                self._opened = True

    async def _shut(self) -> None:
        if self._opened:
            self._opened = False
            await self._engine.__aexit__(None, None, None)
