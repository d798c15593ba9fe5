"""Rows from Parquet files and Hugging Face datasets, read by the real libraries."""

import io
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.command import tirjudge
from tests.tirjudge.benchmark_data import EXAMPLES
from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.hub_server import hub
from tests.tirjudge.judge_command import command
from tirjudge.data.rows import Row
from tirjudge.data.sources import open_rows

ROWS = [
    {"id": n, "prompt": [{"role": "user", "content": f"q{n}"}], "responses": ["x", "y"], "label": n % 2}
    for n in range(150)
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the library's cache to a temporary folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def data_set(folder: Path) -> Path:
    """Write a dataset repository as `push_to_hub` does."""
    write_parquet(folder / "data" / "gpt-00000-of-00001.parquet", ROWS)
    write_parquet(folder / "data" / "claude-00000-of-00001.parquet", ROWS[:3])
    return folder


def test_parquet_is_read_whatever_its_name(tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows"):
        rows = open_rows(str(write_parquet(tmp_path / name, ROWS)))
        read = [row for row in rows if isinstance(row, Row)]
        assert [row.fields for row in read] == ROWS
        assert rows.count() == 150
        assert (read[149].where, read[149].default_id) == (f"{tmp_path / name}, item 150", "item-150")


def test_a_folder_is_a_dataset_with_a_chosen_split(tmp_path: Path) -> None:
    folder = str(data_set(tmp_path / "JudgeBench"))
    rows = open_rows(folder, split="claude")
    read = [row for row in rows if isinstance(row, Row)]
    assert [row.fields["id"] for row in read] == [0, 1, 2]
    assert (read[0].where, rows.count()) == (f"{folder}[claude], item 1", 3)
    with pytest.raises(
        ValueError, match="has the splits claude, gpt: choose one with --split, or name its file"
    ):
        open_rows(folder)
    with pytest.raises(ValueError, match="none"):
        open_rows(folder, split="none")


def test_a_hub_id_is_looked_up_in_the_mirror_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_set(tmp_path / "ScalerLab" / "JudgeBench")
    monkeypatch.setenv("TIRJUDGE_HUB_MIRROR", str(tmp_path))
    assert open_rows("ScalerLab/JudgeBench", split="gpt").count() == 150


def test_a_dataset_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: EndpointServer) -> None:
    data_set(tmp_path / "owner" / "pairs")
    monkeypatch.setenv("TIRJUDGE_HUB_MIRROR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    arguments = ["judge", "owner/pairs", "--split", "claude", "--no-tools", "--model", "m"]
    command(*arguments, "--base-url", server.url, code=0)
    rows = [json.loads(line) for line in (tmp_path / "pairs.verdicts.jsonl").read_text().splitlines()]
    assert sorted((row["id"], row["label"]) for row in rows) == [("0", 0), ("1", 1), ("2", 0)]
    assert {row["where"] for row in rows} == {f"owner/pairs[claude], item {n}" for n in (1, 2, 3)}


def test_a_recreated_folder_is_read_again(tmp_path: Path) -> None:
    """The library's cache distinguishes folders with a dataset card by that card alone."""
    files = "data_files:\n  - split: train\n    path: data/*.parquet"
    card = f"---\nconfigs:\n- config_name: default\n  {files}\n---\n"
    for place, rows in (("one", ROWS[:2]), ("two", ROWS[:3]), ("one", ROWS[4:6])):
        folder = tmp_path / place / "corpus"
        write_parquet(folder / "data" / "rows-00000.parquet", rows)
        (folder / "README.md").write_text(card)
        assert [row.fields for row in open_rows(str(folder)) if isinstance(row, Row)] == rows


@pytest.mark.slow
def test_the_hub_itself_is_read(tmp_path: Path, server: EndpointServer) -> None:
    """The real libraries read a hub over HTTP, in a process without a cache."""
    rows = [{**EXAMPLES["judgebench"], "pair_id": f"p{n}"} for n in range(3)]
    content = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), content)
    with hub({"ScalerLab/JudgeBench": {"data/gpt-00000-of-00001.parquet": content.getvalue()}}) as there:
        fresh = {"HF_ENDPOINT": there.url, "HF_HOME": str(tmp_path / "home")}
        through = ["--model", "m", "--base-url", server.url, "--no-tools", "--no-cache"]
        done = tirjudge("eval", "judgebench", *through, folder=tmp_path, **fresh)
        assert done.returncode == 0, done.stderr
        absent = tirjudge("judge", "owner/absent", "--split", "train", *through, folder=tmp_path, **fresh)
    judged = [json.loads(line) for line in (tmp_path / "judgebench.verdicts.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in judged) == ["p0", "p1", "p2"]
    assert judged[0]["where"].startswith("ScalerLab/JudgeBench[gpt], item ")
    assert absent.returncode == 2
    assert absent.stderr.startswith("tirjudge judge: owner/absent: cannot be loaded as a dataset: ")
    assert len(absent.stderr.splitlines()) == 1
