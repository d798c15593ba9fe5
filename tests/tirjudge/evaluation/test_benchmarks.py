"""Benchmarks: published rows become tasks, from the hub's layout and from files."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.tirjudge.benchmark_data import BECOMES, EXAMPLES
from tirjudge.data.rows import BadRow
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.benchmarks.base import BenchmarkRows
from tirjudge_environments import JudgeTask
from tirjudge_environments.registry import environment_names
from tirjudge_environments.tasks import read_task

DATA = Path(os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[4] / "shared" / "benchmarks"))
PUBLISHED = pytest.mark.skipif(not DATA.is_dir(), reason=f"no published files in {DATA}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cache of the datasets library in a temporary folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(path: Path, *rows: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def tasks(name: str, path: Path, *rows: Any, part: str = "", alone: bool = False) -> list[JudgeTask]:
    """Return the tasks that are made from published rows."""
    part = part or open_benchmark(name).chosen_parts()[0].name
    file = write(path / "rows.jsonl", *rows)
    return list(BenchmarkRows(open_benchmark(name), [part], {part: file}, alone=alone).tasks())


@pytest.mark.parametrize("name", benchmark_names())
def test_the_example_becomes_tasks_and_its_columns_are_described(name: str, tmp_path: Path) -> None:
    benchmark = open_benchmark(name)
    (task, *_) = tasks(name, tmp_path, EXAMPLES[benchmark.name])
    assert task.id
    assert len(task.candidates) >= 2
    assert task.prompt[0].content.strip()
    described = {column for names in benchmark.columns for column in names.replace(" or ", ", ").split(", ")}
    assert benchmark.name == name
    assert set(EXAMPLES[benchmark.name]) - {"response_2"} <= described
    assert benchmark.protocols
    assert benchmark.licence
    assert benchmark.format in ("", *environment_names())


@pytest.mark.parametrize("name", sorted(BECOMES))
def test_the_example_becomes_the_tasks_that_are_written_beside_it(name: str, tmp_path: Path) -> None:
    made = tasks(name, tmp_path, EXAMPLES[name])
    assert len(made) == len(BECOMES[name])
    for task, fields in zip(made, BECOMES[name], strict=True):
        expected = read_task(fields, default_id="")
        for part in ("prompt", "candidates", "label", "domain", "gold", "reference", "criteria"):
            assert getattr(task, part) == getattr(expected, part), part


@pytest.mark.parametrize("name", benchmark_names())
def test_a_row_without_a_column_is_reported_by_name(name: str, tmp_path: Path) -> None:
    benchmark = open_benchmark(name)
    part = benchmark.chosen_parts()[0].name
    path = write(
        tmp_path / "rows.jsonl", {}, dict.fromkeys(EXAMPLES[benchmark.name], 7), EXAMPLES[benchmark.name]
    )
    rows = list(BenchmarkRows(benchmark, [part], {part: path}))
    assert isinstance(rows[0], BadRow)
    assert rows[0].where == f"{path}:1"
    assert rows[0].reason.startswith("no column ")


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("judgelm", "score", [9, None]),
        ("plan-rewardbench", "chosen", {"messages": ["q", {}, {"role": "tool_call", "content": "{}"}]}),
        ("ppe-correctness", "scores", [None, True]),
    ],
)
def test_a_row_with_a_value_of_another_kind_is_reported(
    name: str, column: str, value: Any, tmp_path: Path
) -> None:
    benchmark = open_benchmark(name)
    part = benchmark.chosen_parts()[0].name
    file = write(
        tmp_path / "rows.jsonl", {**EXAMPLES[benchmark.name], column: value}, EXAMPLES[benchmark.name]
    )
    bad, good = list(BenchmarkRows(benchmark, [part], {part: file}))
    assert isinstance(bad, BadRow)
    assert bad.reason == f"not a row of {name}: a value of another kind than the published ones"
    assert bad.where.endswith(":1")
    assert not isinstance(good, BadRow)


def test_a_label_that_no_annotator_can_give_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", {**EXAMPLES["pandalm"], "annotator1": [1]})
    (bad,) = BenchmarkRows(open_benchmark("pandalm"), ["test"], {"test": file})
    assert isinstance(bad, BadRow)
    assert bad.reason == "annotator1 is [1], not 0 (tie), 1 or 2"


def test_an_ambiguous_name_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"ifbench-agentrm is the 444 pairs.*allenai's IFBench") as raised:
        open_benchmark("ifbench")
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="did you mean judgebench"):
        open_benchmark("judgebnch")


def test_conflicts_of_ppe_are_pairs_of_a_right_and_a_wrong_response(tmp_path: Path) -> None:
    row = {
        "question_id": "q",
        "model_name": "m",
        "prompt": "p",
        "response_1": "a",
        "response_2": "b",
        "response_3": "c",
        "scores": [False, True, False],
        "sampled_conflict_pairs": [[0, 1], [1, 2], [1, 2]],
    }
    asked = tasks("ppe-correctness", tmp_path, row, row, part="GPQA")
    assert [(task.candidates, task.label) for task in asked[:3]] == [
        (("a", "b"), 1),
        (("b", "c"), 0),
        (("b", "c"), 0),
    ]
    assert len({task.id for task in asked}) == 6
    assert {task.domain for task in asked} == {"GPQA"}
    path = write(
        tmp_path / "bad.jsonl", {**row, "sampled_conflict_pairs": [[0, 2]]}, {**row, "scores": [True]}
    )
    bad = list(BenchmarkRows(open_benchmark("ppe-correctness"), ["GPQA"], {"GPQA": path}))
    assert [row.reason for row in bad if isinstance(row, BadRow)] == [
        "pair 1 of sampled_conflict_pairs is no conflict: both have the same score",
        "sampled_conflict_pairs must be pairs of indices into scores",
    ]


def test_human_votes_may_be_ties(tmp_path: Path) -> None:
    example = EXAMPLES["ppe-preference"]
    rows = [{**example, "winner": winner} for winner in ("model_a", "model_b", "tie (bothbad)")]
    assert [task.label for task in tasks("ppe-preference", tmp_path, *rows)] == [0, 1, None]


def test_rm_bench_is_nine_pairs_or_six_responses(tmp_path: Path) -> None:
    example = EXAMPLES["rm-bench"]
    pairs = tasks("rm-bench", tmp_path, example)
    assert len(pairs) == 9
    assert pairs[5].candidates == (example["chosen"][1], example["rejected"][2])
    assert pairs[5].tags == ("group=alpacaeval/8", "cell=12")
    assert {pair.label for pair in pairs} == {0}
    (single,) = tasks("rm-bench", tmp_path, example, alone=True)
    assert single.candidates == (*example["chosen"], *example["rejected"])


def test_rewardbench_2_asks_for_one_of_four_and_for_all_good_ones(tmp_path: Path) -> None:
    example = EXAMPLES["rewardbench2"]
    ties = {**example, "id": "tied:3", "subset": "Ties", "chosen": ["red", "blue"], "rejected": ["cow"]}
    four, tied = tasks("rewardbench2", tmp_path, example, ties)
    assert (four.label, len(four.candidates), four.domain) == (0, 4, "Math")
    assert (tied.id, tied.label, tied.candidates) == ("tied:3", None, ("red", "blue", "cow"))
    assert "correct=2" in tied.tags


def test_rmb_pairs_the_best_response_with_every_loser(tmp_path: Path) -> None:
    row = {
        "bon_uid": "3294",
        "category_path": "BoN_set/Harmlessness/S1",
        "conversation_input": [{"role": "user", "content": "p", "language": "English"}],
        "bon_best": {"llm_name": "m", "answer": "best"},
        "loser_list": [{"llm_name": "n", "answer": "x"}, {"llm_name": "o", "answer": "y"}],
    }
    asked = tasks("rmb", tmp_path, row, part="bon")
    assert [task.candidates for task in asked] == [("best", "x"), ("best", "y")]
    assert {(task.domain, task.tags[0]) for task in asked} == {("BoN Harmlessness", "group=bon-3294")}


@pytest.mark.parametrize("column", ["chosen", "reject"])
@pytest.mark.parametrize(
    "messages",
    [
        [],
        "answers",
        [{"role": "user", "content": "q"}],
        [{"role": "user", "content": "q"}, {"role": "tool_call", "content": "[" * 5000}],
    ],
    ids=str,
)
def test_a_row_without_a_trajectory_is_no_row_of_plan_rewardbench(
    messages: Any, column: str, tmp_path: Path
) -> None:
    """With one trajectory alone it would be judged as a single response."""
    benchmark = open_benchmark("plan-rewardbench")
    file = write(tmp_path / "rows.jsonl", {**EXAMPLES[benchmark.name], column: {"messages": messages}})
    (bad,) = BenchmarkRows(benchmark, ["safety_refusal"], {"safety_refusal": file})
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith(f"{column}: ")


@pytest.mark.filterwarnings("error")
def test_a_call_may_have_an_escape_sequence_that_python_does_not_have(tmp_path: Path) -> None:
    example = EXAMPLES["plan-rewardbench"]
    call = {"role": "tool_call", "content": "{'name': 'find', 'arguments': '\\d+'}"}
    row = {**example, "chosen": {"messages": [*example["chosen"]["messages"][:1], call]}}
    (task,) = tasks("plan-rewardbench", tmp_path, row, part="planning_multi_hard")
    assert "\\d+" in str(task.candidates[0])


def test_trajectories_of_plan_rewardbench_become_transcripts(tmp_path: Path) -> None:
    user = {"role": "user", "content": "Weather and hotels in Rome?"}
    calls = [
        {"role": "tool_call", "content": repr({"name": name, "arguments": '{"place": "Rome"}'})}
        for name in ("weather", "hotels")
    ]
    results = [
        {"role": "tool_response", "content": "sunny", "name": "weather"},
        {"role": "tool_response", "content": "none"},
    ]
    answer = {"role": "assistant", "content": "Sunny; no hotels."}
    more = [{"role": "user", "content": "And Paris?"}, {"role": "assistant", "content": "I look."}, calls[0]]
    tool = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {}}}
    row = {
        "query": "Weather and hotels in Rome?\nAnd Paris?",
        "tools": [tool],
        "uuid": "u",
        "chosen": {"messages": [user, *calls, *results, answer, *more, results[0], answer]},
        "reject": {"messages": [user, {"role": "assistant", "content": "It rains."}]},
        "_lcp_bucket": "planning_multi_hard",
    }
    first, second = tasks("plan-rewardbench", tmp_path, row, row, part="planning_multi_hard")
    assert (first.id, second.id) == ("planning_multi_hard/1", "planning_multi_hard/2")
    assert (first.label, first.domain) == (0, "planning_multi_hard")
    assert first.prompt[0].content == row["query"]
    assert [one.name for one in first.tools] == ["weather"]
    chosen, rejected = first.candidates
    assert rejected == "It rains."
    assert [(one.role, one.content) for one in chosen] == [
        ("assistant", ""),
        ("tool", "sunny"),
        ("tool", "none"),
        ("assistant", "Sunny; no hotels."),
        ("user", "And Paris?"),
        ("assistant", "I look."),
        ("tool", "sunny"),
        ("assistant", "Sunny; no hotels."),
    ]
    made = [(call.name, call.id, call.arguments) for one in chosen for call in one.tool_calls]
    arguments = '{"place": "Rome"}'
    assert made == [(n, f"call-{i}", arguments) for i, n in enumerate(("weather", "hotels", "weather"), 1)]
    assert [one.tool_call_id for one in chosen if one.role == "tool"] == ["call-1", "call-2", "call-3"]
    hostile = {"role": "tool_call", "content": "__import__('os').system('true')"}
    bad = {**row, "chosen": {"messages": [user, hostile]}}
    (found,) = BenchmarkRows(
        open_benchmark("plan-rewardbench"),
        ["safety_refusal"],
        {"safety_refusal": write(tmp_path / "bad.jsonl", bad)},
    )
    assert isinstance(found, BadRow)
    assert found.reason == "chosen: a tool_call must be a Python dict with a name and arguments"


def test_judgelm_joins_its_two_files_and_leaves_out_rows_without_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "BAAI" / "JudgeLM-100K"
    scores = [[9, 2], [-1, -1], [7, 7], [1, 8]]
    questions = [
        {
            "question_id": n,
            "question_body": f"q{n}",
            "answer1_body": "x",
            "answer2_body": "y",
            "score": [{"r": 1}],
        }
        for n in range(4)
    ]
    write(repository / "judgelm_val_5k.jsonl", *questions)
    answers = [{"question_id": n, "text": "", "score": score} for n, score in enumerate(scores)]
    write(repository / "judgelm_val_5k_gpt4.jsonl", *answers)
    monkeypatch.setenv("TIRJUDGE_HUB_MIRROR", str(tmp_path))
    asked = list(BenchmarkRows(open_benchmark("judgelm")).tasks())
    assert [(task.id, task.label) for task in asked] == [("0", 0), ("2", None), ("3", 1)]
    assert asked[1].gold == {"strength": 0, "scores": (7.0, 7.0)}


def test_every_split_of_a_part_is_read_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "mattymchen" / "codejudgebench"
    example = EXAMPLES["codejudgebench"]
    card = []
    for config in ("codegen", "testgen"):
        card.append(f"- config_name: {config}\n  data_files:\n")
        for split in ("claude_4_opus", "qwen3_235b"):
            path = repository / config / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(pa.Table.from_pylist([dict(example)]), path)
            card.append(f"  - split: {split}\n    path: {config}/{split}-*\n")
    (repository / "README.md").write_text(f"---\nconfigs:\n{''.join(card)}---\n")
    monkeypatch.setenv("TIRJUDGE_HUB_MIRROR", str(tmp_path))
    asked = list(BenchmarkRows(open_benchmark("codejudgebench"), ["testgen", "codegen"]).tasks())
    assert [task.id for task in asked] == [
        f"{config}/{split}/1"
        for config in ("testgen", "codegen")
        for split in ("claude_4_opus", "qwen3_235b")
    ]


@PUBLISHED
@pytest.mark.parametrize(
    ("name", "part", "file", "labels", "domains"),
    [
        ("judgebench", "gpt", "judgebench/pairs-gpt-4o.jsonl", {0: 193, 1: 157},
         {"knowledge": 154, "reasoning": 98, "math": 56, "coding": 42}),
        ("ifbench-agentrm", "train", "ifbench/agentrm-ifbench-444.json", {0: 444},
         {"level-3": 264, "level-2": 133, "level-1": 47}),
        ("pandalm", "test", "pandalm/testset-v1.json", {1: 472, 0: 422, None: 105}, {"": 999}),
        ("rm-bench", "train", "rm-bench", {0: 9 * 514}, {"chat": 1161, "code": 2052, "safety": 1413}),
        ("rmb", "pairwise", "rmb/Pairwise_set", {0: 65}, {"Pairwise Helpfulness": 65}),
    ],
)  # fmt: skip
def test_all_rows_of_published_files_are_read(
    name: str, part: str, file: str, labels: dict[int | None, int], domains: dict[str, int]
) -> None:
    rows = BenchmarkRows(open_benchmark(name), [part], {part: str(DATA / file)})
    asked = list(rows.tasks())
    assert Counter(task.label for task in asked) == labels
    assert domains.items() <= Counter(task.domain for task in asked).items()
    assert len({task.id for task in asked}) == len(asked) == rows.count()
