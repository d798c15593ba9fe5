"""A benchmark, a protocol and a format of stored outputs each take one file and one entry point."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tirjudge.cli import app
from tirjudge.evaluation import compare, open_benchmark, score
from tirjudge.evaluation.protocols import all_protocols, open_protocol, protocol_names
from tirjudge.evaluation.stored_outputs import open_replay, stored_output_formats

BENCHMARK = """
from tirjudge.evaluation.benchmarks.base import Benchmark, Part

COINS = Benchmark(
    name="coins",
    about="Which coin is worth more",
    parts=(Part(name="test"),),
    columns={"coins": "two names, the better one first"},
    protocols=("luck",),
    licence="CC0",
    example={"coins": ["euro", "cent"]},
    read=lambda row: [{"prompt": "Which?", "responses": row.several("coins", 2), "label": 0}],
)
"""
PROTOCOL = """
from tirjudge.evaluation.base import ProtocolCard
from tirjudge.evaluation.scoring import UnitsBuilder, drawn_vote
from tirjudge.statistics import Proportion


class Luck:
    card = ProtocolCard(name="luck", about="votes for the label", ties="are wrong", failures="are wrong")

    def units(self, rows):
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            builder.add(row.id, row.domain, drawn_vote(row).choice == label)
        return builder.build()

    def figures(self, units):
        return {"lucky": Proportion(float(units.values[:, 0].sum()), len(units.ids))}


LUCK = Luck()
"""
FORMAT = """
from tirjudge.evaluation.base import JudgedRow, Vote


class Tosses:
    name, about, benchmark, protocols = "tosses", "files of tosses", "coins", ("luck",)

    def recognises(self, row):
        return "toss" in row

    def read(self, row, label, default_id):
        yield JudgedRow(id=default_id, votes=(Vote(best=(row["toss"],)),), label=0)


TOSSES = Tosses()
"""
ENTRY_POINTS = """
[tirjudge.benchmarks]
coins = mint_benchmark:COINS
[tirjudge.protocols]
luck = mint_protocol:LUCK
[tirjudge.stored_outputs]
tosses = mint_format:TOSSES
"""


@pytest.fixture
def mint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed third-party package with one module for each extension."""
    for name, source in (("benchmark", BENCHMARK), ("protocol", PROTOCOL), ("format", FORMAT)):
        (tmp_path / f"mint_{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, f"mint_{name}", raising=False)
    metadata = tmp_path / "mint-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mint\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def tosses(path: Path, *results: int) -> Path:
    path.write_text("".join(json.dumps({"toss": result}) + "\n" for result in results))
    return path


def test_one_file_and_one_entry_point_each(mint: Path) -> None:
    assert open_benchmark("coins").protocols == ("luck",)
    assert "luck" in protocol_names()
    assert "luck" in [protocol.card.name for protocol in all_protocols()]
    assert "tosses" in [format.name for format in stored_output_formats()]
    run = CliRunner().invoke(app, ["score", str(tosses(mint / "run.jsonl", 0, 1, 0, 0))])
    assert run.exit_code == 0, run.output
    assert "75.0" in run.stdout


def test_the_public_functions_score_and_compare_runs(mint: Path) -> None:
    first, second = (
        open_replay(tosses(mint / name, *results)) for name, results in (("a", (0, 1)), ("b", (0, 0)))
    )
    luck = open_protocol("luck")
    assert score(luck, first).estimates["lucky"].value == 0.5
    assert compare(luck, luck.units(first), luck.units(second)).gained == 1


def test_a_row_that_fits_several_formats_asks_for_a_name(mint: Path) -> None:
    path = mint / "run.jsonl"
    path.write_text(json.dumps({"toss": 0, "preference": 1, "output_2": "x"}) + "\n")
    with pytest.raises(ValueError, match=r"several formats; name one with --format \(alpaca_eval, tosses\)"):
        open_replay(path)
    assert open_replay(path, format="tosses").format.name == "tosses"


def test_an_entry_that_cannot_be_imported_is_named(mint: Path) -> None:
    (mint / "mint_protocol.py").write_text("import no_such_module\n")
    with pytest.raises(
        ValueError, match=r"^protocol 'luck': cannot import mint_protocol:LUCK: No module named"
    ):
        open_protocol("luck")
    assert open_protocol("tir").card.name == "tir", "other protocols do not depend on it"
