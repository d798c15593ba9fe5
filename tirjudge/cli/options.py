"""Command-line options generated from option models, and config files that the command line overrides."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, get_origin, get_type_hints

import typer
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from tirjudge.cli.output import assigned, one_line_errors, option, with_all_shown
from tirjudge.judging.options import JudgeOptions
from tirjudge.storage.result_file import recorded_settings
from tirjudge.storage.run_settings import MOVABLE, Option
from tirjudge.storage.settings_text import json_value, toml_value
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns

if TYPE_CHECKING:
    from tirjudge.data.rows import RowFormat
    from tirjudge.data.sources import RowSource
    from tirjudge.judging.batch import Plan
    from tirjudge.judging.questions import Kind

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOptions:
    """The options that say how a file of rows is read."""

    column: Annotated[
        list[str] | None,
        option(
            "Rows",
            "Column that holds a part of a row, such as prompt=instruction+input. Repeatable.",
            metavar="PART=COLUMN",
        ),
    ] = None
    labels: Annotated[
        str,
        option(
            "Rows", "Meaning of the label values: 1=A,2=B,0=tie,-1= (no label).", metavar="VALUE=LETTER,..."
        ),
    ] = ""
    subset: Annotated[
        str | None,
        option("Rows", "Configuration of a hub dataset that has several.", metavar="NAME", hidden=True),
    ] = None
    split: Annotated[
        str | None, option("Rows", "Split of a hub dataset that has several.", metavar="NAME", hidden=True)
    ] = None
    encoding: Annotated[
        str,
        option(
            "Rows", "Encoding of a file that is not UTF-8.  [default: detected]", metavar="NAME", hidden=True
        ),
    ] = ""

    @property
    def columns(self) -> Columns:
        return Columns.parse(self.column or ())

    @property
    def meaning(self) -> dict[str, str] | None:
        """The meanings of label values, see `label_values`."""
        return label_values(self.labels)

    def open(self, file: str, format: RowFormat | None = None) -> RowSource:
        """Open the rows of a file, a pattern of files, a hub dataset or standard input."""
        from tirjudge.data.sources import open_rows

        return open_rows(file, format, self.subset, self.split, self.encoding)


def least_wins(text: str) -> tuple[str, float]:
    """Return the source and the share that `--min-win-rate` names; raises ValueError."""
    name, _, share = text.rpartition("=")
    try:
        least = float(share)
    except ValueError:
        least = -1.0
    if not name or not 0 <= least <= 1:
        raise ValueError(
            f"--min-win-rate {text}: give NAME=SHARE, a share from 0 to 1, such as {name or 'NAME'}=0.5"
        )
    return name, least


def joined_answers(
    reading: RowsOptions, answers: Sequence[str], *, together: bool
) -> tuple[RowSource, Columns]:
    """Open the `NAME=FILE` of several models as rows that compare them, and return their columns too.

    Raises ValueError for fewer than two models.
    """
    from tirjudge.data.answers import JoinedAnswers

    files: dict[str, RowSource] = {}
    for given in answers:
        name, _, file = given.partition("=")
        if not name or not file or name in files:
            raise ValueError(f"--answers {given}: give NAME=FILE, with another NAME for each model")
        files[name] = reading.open(file)
    if len(files) < 2:
        raise ValueError("--answers NAME=FILE is given once for each of at least two models")
    named = reading.columns.model_dump(exclude_unset=True)
    kept = {part: place for part, place in named.items() if part not in ("id", "prompt", "response")}
    columns = Columns(**{**kept, "responses": "responses", "sources": "sources"})
    return JoinedAnswers(files, reading.columns, together=together), columns


RUNNER = ("runner", "address", "endpoint", "worker_gpus")
"""Options of a run on several machines."""


class RunOptions(JudgeOptions):
    """The options of a command that judges rows, on this machine or on several.

    The kind of the rows is recorded as their format, so that its options need not be compared as well.
    """

    limit: Annotated[int | None, Field(ge=1), Option("Rows", "--limit", common=True), MOVABLE] = None
    """Judge only the first N rows."""
    pointwise: Annotated[bool, Option("Judging", "--pointwise/--no-pointwise"), MOVABLE] = False
    """Score every response alone."""
    pairwise: Annotated[bool, Option("Judging", "--pairwise/--no-pairwise"), MOVABLE] = False
    """Choose the better of two responses."""
    listwise: Annotated[bool, Option("Judging", "--listwise/--no-listwise"), MOVABLE] = False
    """Choose the best of three or more responses."""
    give_up_after: Annotated[int, Field(ge=0), Option("Cost", "--give-up-after"), MOVABLE] = 50
    """Abort after N consecutive model or sandbox failures; 0 never aborts."""
    overwrite: Annotated[bool, Option("Output", "--overwrite/--no-overwrite", common=True), MOVABLE] = False
    """Discard existing results and judge every row again."""
    texts: Annotated[bool, Option("Output", "--texts/--no-texts"), MOVABLE] = True
    """Record prompts and responses in the result file, so that it can be read and reproduced alone."""

    runner: Annotated[Literal["local", "ray"], Option("Ray cluster", "--runner"), MOVABLE] = "local"
    """The place where rows are judged: this process, or the nodes of a Ray cluster."""
    address: Annotated[
        str | None,
        Option("Ray cluster", "--address", "HOST:PORT", "RAY_ADDRESS, else this machine's cluster"),
        MOVABLE,
    ] = None
    """The Ray cluster, to which this machine belongs."""
    endpoint: Annotated[list[str], Option("Ray cluster", "--endpoint", "URL"), MOVABLE] = Field([])
    """Endpoint of a node, in place of --base-url; the nodes use those given in turn. Repeatable."""
    worker_gpus: Annotated[
        int | None,
        Field(ge=0),
        Option("Ray cluster", "--worker-gpus", default="1 for a model in the worker's process, else 0"),
        MOVABLE,
    ] = None
    """GPUs that each worker reserves; a node runs as many workers as it has GPUs for."""

    @model_validator(mode="before")
    @classmethod
    def _take_endpoint(cls, given: Any) -> Any:
        """Take the first endpoint as the base URL, for all that is the same for each endpoint."""
        if not isinstance(given, Mapping) or not given.get("endpoint"):
            return given
        if given.get("base_url"):
            raise ValueError("--endpoint and --base-url exclude each other")
        return {**given, "base_url": given["endpoint"][0]}

    def resuming(self, results: Path) -> Self:
        """Return the options under which a result file goes on: earlier versions asked for no check first."""
        begun = not self.overwrite and results.is_file() and results.stat().st_size > 0
        if not begun or "untrained" in (recorded_settings(results) or {}):
            return self
        return self.model_copy(update={"untrained": "tir"})

    def plan(self, columns: Columns = DEFAULT_COLUMNS, labels: dict[str, str] | None = None) -> Plan:
        """Return how rows become tasks; raises ValueError for options that exclude each other."""
        from tirjudge.judging.batch import Plan

        return Plan(
            kind=self._kind(),
            columns=columns,
            labels=labels,
            truncate=self.truncate,
            thinking=self.judges_thinking,
            texts=self.texts,
            limit=self.limit,
            concurrency=self.concurrency,
            give_up_after=self.give_up_after,
        )

    def _kind(self) -> Kind | None:
        wanted: tuple[Kind, ...] = ("pointwise", "pairwise", "listwise")
        kinds = [kind for kind in wanted if getattr(self, kind)]
        named = ["format"] * bool(self.format) + [*kinds]
        if len(named) > 1:
            raise ValueError(f"--{named[0]} and --{named[1]} exclude each other")
        return kinds[0] if kinds else None

    def check(self, kind: Kind | None = None) -> None:
        """Raise ValueError for wrong options, before rows or a model are downloaded, converted or loaded.

        `kind` is that of all rows; None if each row decides.
        """
        from tirjudge.judging.judge_engine import JudgeEngine

        # Not in a validator: a config file may hold the address, and the command line choose the runner.
        own = [name for name in ("address", "endpoint", "worker_gpus") if getattr(self, name)]
        if self.runner == "local" and own:
            raise ValueError(f"--{own[0].replace('_', '-')} belongs to --runner ray")
        if self.runner == "ray" and self.jury:
            raise ValueError("--runner ray judges with one --model")
        if self.runner == "ray" and self.checkers:
            raise ValueError("--checkers runs in this process: leave it out with --runner ray")
        if self.runner == "ray" and self.max_cost is not None:
            raise ValueError(
                "--max-cost cannot be kept over several machines: leave it out with --runner ray"
            )
        JudgeEngine(self).check_options(kind)


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_FILE = "TOML or JSON file of options by their Python names; the command line overrides it."
_CONFIG = _keyword("config", Annotated[Path | None, option("Model", _FILE, metavar="FILE")])


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        print(with_all_shown(ctx.command).get_help(ctx))
        raise typer.Exit


_EVERY = typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all options and exit.")
_HELP_ALL = _keyword("help_all", Annotated[bool, _EVERY])


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command so that a parameter that is a dataclass becomes an option for each of its fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if not is_dataclass(kind := parameter.annotation):
            parameters.append(parameter)
            continue
        groups[name], hints = kind, get_type_hints(kind, include_extras=True)
        parameters += [_keyword(one.name, hints[one.name], default=one.default) for one in fields(kind)]

    @wraps(command)
    def adapted(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{one.name: values.pop(one.name) for one in fields(kind)})
        command(**values)

    return _with_parameters(adapted, parameters)


def _with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give a wrapped command the parameters from which Typer builds its options."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # inspect.signature would follow it to the undecorated command.
    del command.__wrapped__  # type: ignore[attr-defined]
    return command


def takes_options(
    name: str, *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate the command `name`, whose parameter `options` is an option model.

    The command gets one command-line option for each field of the model but those in `without`, `--config`
    and `--help-all`. Its errors become one line and exit code 2.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command = with_groups(command)
        model: type[BaseModel] = get_type_hints(command)["options"]
        taken = {field: info for field, info in model.model_fields.items() if field not in without}
        options = {field: one for field, info in taken.items() if (one := _option(info))}
        signature = inspect.signature(command)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
        generated = [_CONFIG, *(_parameter(field, taken[field], one) for field, one in options.items())]

        @wraps(command)
        def adapted(*, config: Path | None = None, help_all: bool = False, **values: Any) -> None:
            with one_line_errors(name):
                given = {field: values.pop(field) for field in options}
                for field, one in options.items():
                    if one.further and given[field] is not None:
                        given[field], *given[one.further] = given[field]
                refused = {} if config is None else read_config_file(model, config).keys() & {*without}
                if refused:
                    raise ValueError(f"{config}: tirjudge {name} has no option {', '.join(sorted(refused))}")
                command(**values, options=read_options(model, config, given))

        return _with_parameters(adapted, [*own, *generated, _HELP_ALL])

    return decorate


def read_options(model: type[ModelT], file: Path | None, given: Mapping[str, Any]) -> ModelT:
    """Return the options of a config file and, over them, of the command line (None: not given).

    `KEY=VALUE` assignments are merged into the file's table key by key. Raises ValueError, in one line.
    """
    options = {} if file is None else read_config_file(model, file)
    for name, value in given.items():
        if value is None:
            continue
        if _is_table(model.model_fields[name]):
            # One assignment on the command line must not discard the file's other keys.
            flag = (_option(model.model_fields[name]) or Option("", f"--{name}")).flag
            value = {**options.get(name, {}), **assigned(flag, value)}
        options[name] = value
    return model(**options)


def read_config_file(model: type[BaseModel], file: Path) -> dict[str, Any]:
    """Return the options in a TOML or JSON file; raises ValueError, which names the file, for a bad one."""
    is_json = file.suffix == ".json"
    try:
        text = file.read_text(encoding="utf-8")
        options: dict[str, Any] = json_value(text) if is_json else toml_value(text)
    except FileNotFoundError:
        raise ValueError(f"--config {file}: there is no such file") from None
    except ValueError as error:
        raise ValueError(f"{file} is not {'JSON' if is_json else 'TOML'}: {error}") from None
    try:
        # A required option may still come from the command line.
        given = options if isinstance(options, dict) else {"": options}
        missing = {name: "-" for name, field in model.model_fields.items() if field.is_required()}
        taken = model.model_validate({**missing, **given})
    except ValidationError as error:
        raise ValueError(f"{file}: {first_fault(error)}") from None
    for name, value in given.items():
        read = getattr(taken, name)
        # Defaults that depend on an option are chosen before a text such as "2" is read as a number.
        if isinstance(read, int | float) and isinstance(value, str | bool) and type(value) is not type(read):
            raise ValueError(f"{file}: {name}: write {json.dumps(read)}, not {json.dumps(value)}")
    return options


def _parameter(name: str, field: FieldInfo, declared: Option) -> inspect.Parameter:
    """Return the parameter from which typer makes a field's option.

    Its default is None, so that an option that is not given leaves the value of a config file alone.
    """
    default = declared.default or _shown(field)
    note = "[required]" if field.is_required() else f"[default: {default}]" if default else ""
    about = (field.description or "").partition("\n\n")[0]
    annotation: Any = field.annotation
    if declared.further:
        note += " Repeatable: all vote."
    if _is_table(field) or declared.further:
        annotation = list[str]
    shown = option(
        declared.panel,
        f"{about}  {note}".rstrip(),
        declared.flag,
        metavar=declared.metavar or ("N" if annotation in (int, int | None) else None),
        hidden=not declared.common,
    )
    return _keyword(name, Annotated[annotation | None, shown])


def _option(field: FieldInfo) -> Option | None:
    return next((one for one in field.metadata if isinstance(one, Option)), None)


def _is_table(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is Mapping


def _shown(field: FieldInfo) -> str:
    if field.annotation is bool:
        return "yes" if field.default else "no"
    return "" if field.is_required() or field.default in (None, {}, []) else str(field.default)


def label_values(text: str) -> dict[str, str] | None:
    """Return the meanings of a dataset's own labels, from `1=A,2=B,0=tie` or JSON; None for an empty text.

    An empty meaning leaves a value out: `-1=`. Raises ValueError, in one line.
    """
    if not text:
        return None
    pairs = _json_pairs(text) if text.lstrip().startswith("{") else _plain_pairs(text)
    found: dict[str, str] = {}
    for value, meaning in pairs:
        if value in found and found[value] != meaning:
            raise ValueError(f"--labels gives {value!r} two meanings, {found[value]!r} and {meaning!r}")
        found[value] = meaning
    return found


def _plain_pairs(text: str) -> Iterable[tuple[str, str]]:
    pairs = [pair.rpartition("=") for pair in text.split(",")]
    if not all(sign and value.strip() for value, sign, _ in pairs):
        raise ValueError(
            f"--labels {text!r}: write VALUE=LETTER,VALUE=LETTER,VALUE=tie; values with a comma as JSON: "
            """'{"good, short": "A"}'"""
        )
    return [(value.strip(), meaning.strip()) for value, _, meaning in pairs]


def _json_pairs(text: str) -> Iterable[tuple[str, str]]:
    try:
        found = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--labels {text!r} is not JSON: {error}") from None
    for value, meaning in found:
        if not isinstance(meaning, str | int | float | None):
            raise ValueError(f"--labels: the meaning of {value!r} is no text")
    return [(value, "" if meaning is None else str(meaning)) for value, meaning in found]
