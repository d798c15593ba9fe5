"""docs/evaluation.md lists every protocol, format and benchmark with its own description."""

from __future__ import annotations

from pathlib import Path

from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.protocols import OTHER_NAMES, all_protocols
from tirjudge.evaluation.published import published
from tirjudge.evaluation.stored_outputs import stored_output_formats

DOCS = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_every_protocol_is_listed_with_its_card() -> None:
    for protocol in all_protocols():
        card = protocol.card
        cells = (f"`{card.name}`", card.about, card.ties)
        assert f"| {' | '.join(cells)} |" in DOCS
    for other in OTHER_NAMES:
        assert f"`{other}`" in DOCS


def test_every_format_of_stored_outputs_is_listed() -> None:
    for format in stored_output_formats():
        names = ", ".join(f"`{name}`" for name in format.protocols)
        assert f"| `{format.name}` | {format.about} | {names} |" in DOCS


def test_the_number_of_published_figures_is_right() -> None:
    assert f"({len(published()):,} cells)" in DOCS


def test_every_benchmark_is_listed_with_its_rows() -> None:
    for name in benchmark_names():
        benchmark = open_benchmark(name)
        parts = "; ".join(
            f"{part.name} {'?' if part.rows is None else part.rows}" for part in benchmark.parts
        )
        hubs = ", ".join(dict.fromkeys(f"`{part.hub}`" for part in benchmark.parts if part.hub))
        cells = (f"`{name}`", benchmark.about, f"{parts}: {hubs or 'a local file'}")
        assert f"| {' | '.join(cells)} |" in DOCS
