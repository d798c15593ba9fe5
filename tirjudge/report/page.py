"""A report as one HTML page that needs no network: its parts, its content security policy, its data."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from tirjudge.console_text import duration, printable
from tirjudge.data.rows import STANDARD_INPUT
from tirjudge.evaluation.stored_outputs.files import matching_files
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.generation.spending import Price
from tirjudge.records.result_row import is_result_file
from tirjudge.report.judgments import JudgedRun, comparisons, joined, read_run
from tirjudge.report.row_table import Texts
from tirjudge.report.training import TrainingRun, is_training_run, read_training_run
from tirjudge.storage.json_lines import finite

_UPLOT = "uplot-1.6.32"
_SCRIPTS = ("page.js", "columns.js", "row.js", "labels.js", "rows.js")
_CHART_SCRIPTS = (f"{_UPLOT}/uPlot.iife.min.js", "charts.js")


@dataclass(frozen=True, slots=True)
class Page:
    """A page with the sizes of its parts, in bytes."""

    html: bytes
    rows: int
    """Rows in its table; 0 for a training run."""
    text_bytes: int
    """Bytes of the compressed texts."""


def page_of(
    runs: Sequence[Path],
    *,
    opened: Callable[[Sequence[Path]], Replay],
    named: bool,
    labels: Path | None,
    texts: Texts,
    price: Price | None,
    seed: int,
    title: str = "",
) -> Page:
    """Return the page of result files, of stored outputs that are `opened`, or of training runs.

    With `named`, options say how files are read that are no result files. Result files take `labels` as well.

    Raises OSError for a missing file, and ValueError, in one line, for any other bad input.
    """
    folders = [run for run in runs if run.is_dir()]
    if len(set(runs)) < len(runs):
        raise ValueError("the same run is given twice")
    if folders and len(folders) < len(runs):
        raise ValueError(f"{folders[0]} is a folder: a training run has a report of its own")
    for folder in folders:
        if not is_training_run(folder):
            raise ValueError(f"{folder} is no run folder of tirjudge train: no stage in it has metrics")
    if folders:
        return training_page(list(map(read_training_run, folders)), title=title)
    judged = []
    for run in runs:
        found = [] if str(run) == STANDARD_INPUT else matching_files(run)
        own = bool(found) and all(not file.stat().st_size or is_result_file(file) for file in found)
        if own and named:
            raise ValueError(f"{run} is a result file: leave out the options for files of other projects")
        stored = None if own else opened([run])
        given = labels if own else None
        judged.append(read_run(run, stored=stored, labels=given, texts=texts, price=price, seed=seed))
    return judged_page(judged, seed=seed, title=title)


def judged_page(runs: Sequence[JudgedRun], *, seed: int = 0, title: str = "") -> Page:
    """Return the page of a judged run, or of several that are compared with the first.

    Without a `title` the names of the runs are one.

    Raises ValueError if the runs have no row in common, or one with another label, and without the extra
    `report`.
    """
    rows = encoded(joined(runs))
    chunks = [(number, run.table.chunks) for number, run in enumerate(runs)]
    html = _render(
        "judgments.html.jinja",
        title=title or " and ".join(run.name for run in runs),
        scripts=_SCRIPTS,
        runs=[run.summary for run in runs],
        comparisons=comparisons(runs, seed) if len(runs) > 1 else [],
        data=rows,
        chunks=chunks,
    )
    return Page(
        html,
        rows=sum(len(run.table.ids) for run in runs),
        text_bytes=sum(len(chunk) for _, found in chunks for chunk in found),
    )


def training_page(runs: Sequence[TrainingRun], *, renewed: int | None = None, title: str = "") -> Page:
    """Return the page of training runs, whose curves are drawn over each other.

    `renewed` is the seconds after which a browser loads the page again.
    """
    data = encoded({"runs": [{"name": run.name, **run.charts} for run in runs]})
    html = _render(
        "training.html.jinja",
        title=title or " and ".join(run.name for run in runs),
        scripts=("page.js", *_CHART_SCRIPTS),
        renewed=renewed,
        runs=[run.summary for run in runs],
        data=data,
    )
    return Page(html, rows=0, text_bytes=0)


def encoded(data: Any) -> str:
    """Return JSON for a script element of type application/json: hostile text cannot end the element."""
    text = json.dumps(finite(data), separators=(",", ":"))
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _render(template: str, *, title: str, scripts: Sequence[str], **values: Any) -> bytes:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise ValueError("a report needs Jinja2: pip install 'tirjudge[report]'") from None
    environment = Environment(
        loader=PackageLoader("tirjudge.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Jinja's own filters would escape nothing more; printable shows control characters as escapes.
        finalize=lambda value: printable(value, 10_000) if type(value) is str else value,
    )
    environment.filters.update(
        percent=percent, figure=figure, interval=interval, short=short, duration=duration
    )
    script = "\n".join(_asset(name) for name in scripts)
    style = "\n".join(_asset(name) for name in ("report.css", f"{_UPLOT}/uPlot.min.css"))
    policy = [
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    html = environment.get_template(template).render(
        title=title,
        policy="; ".join(policy),
        style=_markup(style),
        script=_markup(script),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("tirjudge"),
        **{name: _markup(value) if name == "data" else value for name, value in values.items()},
    )
    return html.encode(errors="backslashreplace")


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _asset(name: str) -> str:
    return files("tirjudge.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def percent(value: float | None, *, signed: bool = False) -> str:
    """Return a share from 0 to 1 as a percentage with one decimal; a dash if it is unknown."""
    if value is None or math.isnan(value):
        return "–"
    return _signs(f"{100 * value:{'+' if signed else ''}.1f}")


def _signs(number: str) -> str:
    """Return a number with a minus sign in place of a hyphen."""
    return number.replace("-", "−") if "e" not in number else number


def figure(value: float | None, *, is_share: bool = False, signed: bool = False) -> str:
    """Return a number as a table shows it; shares as percentages."""
    if value is None or math.isnan(value):
        return "–"
    if is_share:
        return percent(value, signed=signed)
    if not signed and float(value).is_integer() and abs(value) < 1e12:
        return f"{value:,.0f}"
    digits = ",.0f" if abs(value) >= 1000 else ".4g"
    return _signs(f"{value:{'+' if signed else ''}{digits}}")


def interval(found: Mapping[str, Any], *, is_share: bool = True, signed: bool = False) -> str:
    """Return a 95 % interval as text; empty if there is none."""
    low, high = found["low"], found["high"]
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    shown = [figure(bound, is_share=is_share, signed=signed) for bound in (low, high)]
    return f"{shown[0]} to {shown[1]}"


def short(values: Iterable[str], limit: int = 6) -> str:
    """Return names joined by commas, the first few if there are many."""
    named = list(values)
    more = f" and {len(named) - limit} more" if len(named) > limit else ""
    return ", ".join(named[:limit]) + more
