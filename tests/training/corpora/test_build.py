"""`tirjudge data build` makes all of Table 6 from small files with the real columns, ready for training."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, serving
from tests.tirjudge.judge_command import command
from tests.training.hub import Hub
from tests.training.table6 import SOURCES, TABLE_6, TOTAL, answer, fill, question
from tirjudge.data.rows import Row
from tirjudge.data.sources import MIRROR, open_rows
from tirjudge.judging.meta_judge import AskedModel
from tirjudge_environments import Message
from tirjudge_environments.tasks import read_task
from tirjudge_training.corpora.answers import Generators
from tirjudge_training.corpora.base import KINDS, open_source
from tirjudge_training.corpora.config import CorpusConfig, SamplingConfig
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.recipe_file import MIXTURES, load

SCALE = 0.008
PAIRS = ("help-steer-3", "safe-rlhf", "ultra-interact")
OTHERS = [name for name in SOURCES if name not in PAIRS]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The ten datasets, each with a little more than twice the rows that the small corpus takes."""
    made = Hub(tmp_path_factory.mktemp("hub"))
    fill(made, lambda name: 20 + round(3 * SCALE * TABLE_6[name][-1]))
    os.environ[MIRROR] = str(made.folder)
    yield made
    del os.environ[MIRROR]


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving() as state:
        state.script = answer
        yield state


def tirjudge(*words: object, code: int | None = None) -> Result:
    return command("data", *words, code=code)


def rows(folder: Path) -> list[Row]:
    found = list(open_rows(str(folder)))
    assert all(isinstance(row, Row) for row in found)
    return [row for row in found if isinstance(row, Row)]


def build(
    folder: Path, *words: object, without: tuple[str, ...] | list[str] = (), code: int | None = None
) -> Result:
    left = [word for name in without for word in ("--without", name)]
    return tirjudge("build", "tir", "--output", folder, "--against", "-", *left, *words, code=code)


def test_the_mixture_is_table_6() -> None:
    sources = load(CorpusConfig, "tir", home=MIXTURES).sources
    assert list(sources) == list(TABLE_6)
    for name, (domain, *counts, total) in TABLE_6.items():
        assert list(sources[name].counts(1).values()) == counts
        assert sum(counts) == total
        assert open_source(name).card.domain == domain
    columns = zip(*(row[1:] for row in TABLE_6.values()), strict=True)
    assert tuple(map(sum, columns)) == TOTAL


@pytest.mark.slow
def test_all_of_table_6_is_built_and_can_be_trained_on(
    hub: Hub, server: EndpointServer, tmp_path: Path
) -> None:
    """At 0.8 %: `datasets`, HTTP generators, verifiers, math-verify, sandbox, Parquet and RowData."""
    against = tmp_path / "bench.jsonl"
    planted = question(1, "what would you do?")
    against.write_text(json.dumps({"prompt": f"Tell me. {planted}"}) + "\n")
    generators = [word for model in ("good", "bad") for word in ("--generator", f"{model}@{server.url}")]
    folder = tmp_path / "tir"
    tirjudge(
        *("build", "tir", "--output", folder, "--scale", SCALE, "--set", "sampling.window=8"),
        *(*generators, "--against", against),
        code=0,
    )
    found = rows(folder)
    made = Counter((row.fields["source"], row.fields["format"]) for row in found)
    for name, (domain, *counts, _) in TABLE_6.items():
        assert [made[name, kind] for kind in KINDS] == [round(count * SCALE) for count in counts], name
        assert {row.fields["domain"] for row in found if row.fields["source"] == name} == {domain}
    tasks = [read_task(row.fields, default_id=row.default_id) for row in found]
    assert len({task.id for task in tasks}) == len(tasks)
    assert planted not in {task.prompt[0].content for task in tasks}
    for row, task in zip(found, tasks, strict=True):
        listwise = row.fields["format"] == "listwise"
        assert len(task.candidates) in ((4, 5, 6) if listwise else (2,))
        assert row.fields["environment"] == f"tir-{row.fields['format']}"
    assert_labels_are_right(found)
    judges = {f"tir-{kind}": EnvironmentConfig(name=f"tir-{kind}") for kind in KINDS}
    data = RowData(DataConfig(train=folder), judges)
    assert {formatted.format for formatted in data.prompts(None, 0)} == set(judges)
    (dropped,) = (json.loads(line) for line in (folder / "dropped.jsonl").read_text().splitlines())
    assert dropped["source"] == "help-steer-3"
    assert dropped["words"] == "case 1 of clocks and rivers what would"


def assert_labels_are_right(found: list[Row]) -> None:
    """Labels are verified against the answers' text; no position gives the label away."""
    for row in found:
        good = row.fields["responses"]["ABCDEF".index(row.fields["label"])]
        bad = [text for text in row.fields["responses"] if text != good]
        match row.fields["source"]:
            case "tulu-3":
                assert "," not in good
                assert all("," in text for text in bad)
            case "math" | "dapo-bigmath" | "web-instruct" | "loong":
                numbers = row.fields["prompt"][0]["content"].rsplit("is ", 1)[1].rstrip("?").split(" plus ")
                total = f"\\boxed{{{sum(map(int, numbers))}}}"
                assert total in good
                assert all(total not in text for text in bad)
            case "code-rm":
                assert "a + b" in good
                assert all("a - b" in text for text in bad)
            case "help-steer-3":
                number = int(good.split()[1])
                assert (number % 7 in (0, 1)) == good.startswith("first")
                assert number % 7 not in (2, 3, 4)
            case "safe-rlhf":
                assert good.startswith("careful")
    places = Counter(row.fields["label"] for row in found if len(row.fields["responses"]) == 2)
    assert 0.4 < places["A"] / places.total() < 0.6


def test_the_same_seed_makes_the_same_rows_and_another_does_not(hub: Hub, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert build(tmp_path / name, "--scale", 0.01, "--seed", seed, without=OTHERS).exit_code == 0
    first, again, other = ([row.fields for row in rows(tmp_path / name)] for name in "abc")
    assert first == again
    assert {row["id"] for row in first} != {row["id"] for row in other}


def test_weights_scale_the_sources_of_a_mixture(hub: Hub, tmp_path: Path) -> None:
    weights = ("--set", "sources.safe-rlhf.weight=2", "--set", "sources.ultra-interact.weight=0")
    assert build(tmp_path / "a", "--scale", 0.01, *weights, without=OTHERS).exit_code == 0
    found = Counter(row.fields["source"] for row in rows(tmp_path / "a"))
    assert found == {"help-steer-3": 40, "safe-rlhf": 20}


KILLED = """
import sys
from tirjudge.cli import app
app(["data", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_a_killed_build_resumes_without_sampling_any_answer_twice(
    hub: Hub, server: EndpointServer, tmp_path: Path
) -> None:
    """The build is killed while answers are sampled; its rows are those of an uninterrupted build."""
    without = [name for name in SOURCES if name != "math"]
    words = ["--scale", "0.008", "--set", "sampling.window=8"]
    words += ["--generator", f"good@{server.url}", "--generator", f"bad@{server.url}"]
    assert build(tmp_path / "whole", *words, without=without).exit_code == 0
    server.asked.clear()
    server.delay = 0.05
    left = [word for name in without for word in ("--without", name)]
    command = ["build", "tir", "--output", str(tmp_path / "cut"), "--against", "-", *left, *words]
    child = subprocess.Popen([sys.executable, "-c", KILLED, *command], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    answers = tmp_path / "cut" / "work" / "math" / "asked.jsonl"
    while (
        not (answers.exists() and len(answers.read_text().splitlines()) >= 8) and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    kept = len(answers.read_text().splitlines())
    assert not (tmp_path / "cut" / "data").exists(), "an unfinished build must not look like a corpus"
    assert kept >= 8
    server.delay = 0
    cut = len(server.asked)
    assert build(tmp_path / "cut", *words, without=without).exit_code == 0
    asked = [json.dumps([body["model"], body["messages"], body["seed"]]) for body in server.bodies]
    repeated = len(asked) - len(set(asked))
    assert repeated <= cut - kept, "only answers that the kill lost may be sampled again"
    undisturbed, resumed = ([row.fields for row in rows(tmp_path / name)] for name in ("whole", "cut"))
    assert resumed == undisturbed


async def test_no_request_outlives_the_generators(server: EndpointServer, tmp_path: Path) -> None:
    """A full source cancels the answers under way; their sockets would else be left open."""
    server.delay = 30.0
    models = [AskedModel(model=name, base_url=server.url) for name in ("good", "bad")]
    generators = Generators(models, SamplingConfig(), tmp_path, say=print)
    asked = asyncio.ensure_future(generators.answers("a", [Message("user", "Why?")]))
    assert await asyncio.to_thread(server.arrived.wait, 30.0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await generators.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_finished_corpus_is_not_built_again_nor_mixed_with_another(hub: Hub, tmp_path: Path) -> None:
    words = ("--scale", 0.01)
    assert build(tmp_path / "a", *words, without=OTHERS).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "data").iterdir()}
    assert build(tmp_path / "a", *words, without=OTHERS).exit_code == 0
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "data").iterdir()}
    other = build(tmp_path / "a", "--scale", 0.02, without=OTHERS, code=2)
    assert "other settings (scale was" in other.output


def test_fewer_rows_than_wanted_are_kept_and_reported(hub: Hub, tmp_path: Path) -> None:
    result = build(tmp_path / "a", "--scale", 1, without=[n for n in SOURCES if n != "safe-rlhf"], code=1)
    found = rows(tmp_path / "a")
    assert f"safe-rlhf: {len(found)} of 1,000 rows: the source has no more that fit" in result.output
    assert 0 < len(found) < 1000


def test_a_pair_of_equal_answers_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, part, row = SOURCES["safe-rlhf"]
    safe = {"is_response_0_safe": True, "is_response_1_safe": False, "safer_response_id": 0}
    answers = ({}, {"response_0": "same", "response_1": "same"})
    Hub(tmp_path).add(dataset, {part: [row(n) | safe | answer for n, answer in enumerate(answers)]})
    monkeypatch.setenv(MIRROR, str(tmp_path))
    assert build(tmp_path / "out", without=[n for n in SOURCES if n != "safe-rlhf"]).exit_code == 1
    assert len(rows(tmp_path / "out")) == 1
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["safe-rlhf"]["left_out"] == {"the same answer is good and bad": 1}


def test_a_missing_split_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, _, row = SOURCES["safe-rlhf"]
    Hub(tmp_path).add(dataset, {("default", "test"): [row(0)]})
    monkeypatch.setenv(MIRROR, str(tmp_path))
    result = build(tmp_path / "out", without=[name for name in SOURCES if name != "safe-rlhf"], code=3)
    message = result.output.splitlines()[-1]
    assert message.startswith("tirjudge data: PKU-Alignment/PKU-SafeRLHF (default, train) cannot be read: ")
    assert not (tmp_path / "out" / "data").exists()


@pytest.mark.parametrize(
    ("source", "changed", "named"),
    [
        ("help-steer-3", {"overall_preference": 7}, "preference/train, row 0: overall_preference"),
        ("help-steer-3", {"context": [{"role": "tool", "content": ""}]}, "row 0: context.0.role"),
        ("safe-rlhf", {"prompt": None}, "default/train, row 0: prompt: no such column"),
    ],
)
def test_a_changed_schema_is_reported_with_row_and_column(
    source: str, changed: dict[str, object], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: the column has another name."""
    dataset, part, row = SOURCES[source]
    only = {name: value for name, value in (row(0) | changed).items() if value is not None}
    Hub(tmp_path).add(dataset, {part: [only]})
    monkeypatch.setenv(MIRROR, str(tmp_path))
    result = build(tmp_path / "out", without=[name for name in SOURCES if name != source], code=3)
    assert named in result.output


def test_missing_generators_are_reported_before_anything_is_read(tmp_path: Path) -> None:
    result = build(tmp_path / "out", code=2)
    assert "source tulu-3 needs sampled answers: name models with --generator MODEL@URL" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("url", ["localhost:8000/v1", "http://user:password@host/v1"])
def test_a_bad_address_of_a_generator_is_reported_before_anything_is_stored(tmp_path: Path, url: str) -> None:
    result = build(tmp_path / "out", "--generator", f"m@{url}", code=2)
    assert "generators: the base URL must be http(s)://host" in result.output
    assert "password" not in result.output
    assert not (tmp_path / "out").exists()


def test_inspect_counts_rows_and_lists_faults(hub: Hub, tmp_path: Path) -> None:
    assert build(tmp_path / "a", "--scale", 0.01, without=OTHERS).exit_code == 0
    shown = tirjudge("inspect", tmp_path / "a", code=0)
    assert re.search("safe-rlhf +5 +5 +0 +10\n", shown.output)
    assert "domains: helpfulness 40, code 40, safety 10" in shown.output
    (tmp_path / "bad.jsonl").write_text('{"prompt": "p"}\n')
    assert re.search("total +0 +0 +0 +0\n", tirjudge("inspect", tmp_path / "bad.jsonl").output)
    (tmp_path / "bad.jsonl").write_text('{"prompt": "p", "responses": ["a"]}\n{"prompt": "p"}\n')
    bad = tirjudge("inspect", tmp_path / "bad.jsonl", code=1)
    assert "1 rows cannot be read: no responses" in bad.output


def test_no_domain_that_inspect_prints_reaches_the_terminal(tmp_path: Path) -> None:
    row = {"prompt": "p", "responses": ["a", "b"], "label": 0, "domain": "d\x1b[31m\nlabel: 0 of 2: 99"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    shown = tirjudge("inspect", tmp_path / "rows.jsonl").output
    assert "domains: d\\x1b[31m\\nlabel: 0 of 2: 99 1\nlabel: 0 of 2: 1\n" in shown


def test_data_inspect_prints_json(tmp_path: Path) -> None:
    pair = {"id": "a", "prompt": "Name a prime.", "responses": ["2", "4 or 6"], "label": 0, "domain": "math"}
    rows = [pair, pair | {"id": "b", "label": 1}, pair | {"id": "c", "responses": "2"}]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ran = tirjudge("inspect", tmp_path / "rows.jsonl", "--json")
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["rows"], found["domains"]) == (1, 2, {"math": 2})
    assert found["labels"] == [
        {"responses": 2, "label": 0, "rows": 1},
        {"responses": 2, "label": 1, "rows": 1},
    ]
    # Three words of the prompt and four of the responses.
    assert found["words"]["100 %"] == 7
    assert list(found["faults"].values()) == [1]
