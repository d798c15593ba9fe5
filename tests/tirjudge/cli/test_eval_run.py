"""`tirjudge eval BENCHMARK` as a user runs it: judged, scored, resumed, metered."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.tirjudge.benchmark_data import EXAMPLES, benchmark_file
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import command
from tests.tirjudge.judge_command import write_rows as write


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRJUDGE_CACHE", str(tmp_path / "cache.sqlite"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def evaluate(*arguments: object, url: str = "", code: int | None = None) -> Result:
    through = ("--model", "m", "--base-url", url, "--no-tools") if url else ()
    group = [] if arguments[:1] == ("score",) else ["eval"]
    return command(*group, *arguments, *through, code=code)


def pairs(count: int, label: str = "A>B") -> list[dict[str, Any]]:
    example = EXAMPLES["judgebench"]
    return [
        {**example, "pair_id": f"p{n}", "question": f"Question {n}", "label": label} for n in range(count)
    ]


def results(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def test_a_benchmark_is_judged_in_its_orders_and_scored_under_its_protocols(
    tmp_path: Path, server: EndpointServer
) -> None:
    """A judge that prefers what comes first is right in one order, consistent never, and wins no net vote."""
    data = write(tmp_path / "rows.jsonl", pairs(4))
    run = evaluate("judgebench", "--data", data, "--json", url=server.url, code=0)
    assert "judged" in run.stderr
    rows = results(tmp_path / "judgebench.verdicts.jsonl")
    assert {row["domain"] for row in rows.values()} == {"math"}
    assert [view["order"] for view in rows["p0"]["views"]] == [[0, 1], [1, 0]]
    scores = {record["protocol"]: record for record in json.loads(run.stdout)}
    assert {"net-vote", "both-orders", "first-order", "second-order", "errors", "cost"} <= set(scores)
    again = evaluate("score", "judgebench.verdicts.jsonl", "--protocol", "first-order", "--json", code=0)
    (replayed,) = json.loads(again.stdout)
    assert {**replayed} == {**scores["first-order"]}
    settings = json.loads(Path("judgebench.verdicts.jsonl.settings.json").read_text())["settings"]
    assert (settings["benchmark"], settings["parts"], settings["order"]) == ("judgebench", ["gpt"], "both")


@pytest.mark.parametrize(
    ("benchmark", "file", "key"),
    [("judgebench", "judge-arena-hard-o1-mini.jsonl", "pair_id"), ("pandalm", "testset-v1.json", "idx")],
)
def test_published_error_rates_are_printed_with_the_benchmarks_of_their_paper_only(
    benchmark: str, file: str, key: str, tmp_path: Path, server: EndpointServer
) -> None:
    """TIR-Judge's Table 3. A judge without programs has no share of them that failed."""
    of_the_paper = benchmark == "judgebench"
    data = write(tmp_path / "rows.jsonl", [EXAMPLES[benchmark]])
    run = evaluate(benchmark, "--data", data, "--json", url=server.url, code=0)
    path = tmp_path / f"{benchmark}.verdicts.jsonl"
    # One row is not comparable with figures on the whole benchmark, so that it stands for all of them.
    (row,) = results(path).values()
    text = benchmark_file(f"{benchmark}/{file}").read_text()
    published = json.loads(text) if text.startswith("[") else map(json.loads, text.splitlines())
    write(path, [{**row, "id": str(one[key])} for one in published])
    again = evaluate("score", str(path), "--protocol", "errors", "--json")
    assert "NaN" not in run.stdout + again.stdout
    (every,) = json.loads(again.stdout)
    assert any(one["model"] == "Qwen-3-Tool" for one in every["published"]) == of_the_paper
    (alone,) = [record for record in json.loads(run.stdout) if record["protocol"] == "errors"]
    assert not alone["published"]
    assert ("not_comparable" in alone) == of_the_paper


def test_a_pointwise_judge_sees_the_six_responses_of_rm_bench_once(
    tmp_path: Path, server: EndpointServer
) -> None:
    server.script = lambda body: chat(
        f"<score>{9 if 'even' in body['messages'][0]['content'] else 3}</score>"
    )
    data = write(tmp_path / "rows.jsonl", [EXAMPLES["rm-bench"]])
    evaluate("rm-bench", "--pointwise", "--no-cache", "--data", f"train={data}", url=server.url, code=0)
    (row,) = results(tmp_path / "rm-bench.verdicts.jsonl").values()
    assert len(server.asked) == 6
    assert row["scores"] == [3, 9, 3, 3, 3, 3]


def test_several_samples_are_drawn_and_most_of_them_decide(tmp_path: Path, server: EndpointServer) -> None:
    server.answers(*[chat(f"<preference>{letter}</preference>") for letter in "ABBBA"])
    data = write(tmp_path / "rows.jsonl", pairs(1))
    arguments = ("judgebench", "--data", data, "--order", "given", "--samples", "5", "--concurrency", "1")
    run = evaluate(*arguments, "--json", url=server.url, code=0)
    scored = {record["protocol"] for record in json.loads(run.stdout)}
    assert {"self-consistency", "one-order", "tir"} <= scored
    row = results(tmp_path / "judgebench.verdicts.jsonl")["p0"]
    assert (row["choice"], row["correct"]) == (1, 0.0)
    assert [view["sample"] for view in row["views"]] == [0, 1, 2, 3, 4]
    assert {(body["temperature"], body["top_p"]) for body in server.bodies} == {(1.0, 0.95)}
    assert len({body["seed"] for body in server.bodies}) == 5


def test_the_cache_answers_what_was_asked_before_under_whatever_name(
    tmp_path: Path, server: EndpointServer
) -> None:
    data = write(tmp_path / "rows.jsonl", pairs(3))
    assert evaluate("judgebench", "--data", data, url=server.url).exit_code == 0
    assert len(server.asked) == 6
    renamed = [{**row, "pair_id": f"other-{row['pair_id']}"} for row in pairs(3)]
    data = write(tmp_path / "renamed.jsonl", renamed)
    run = evaluate("judgebench", "--data", data, "--output", "again.jsonl", url=server.url)
    assert len(server.asked) == 6
    assert "calls     6 from the cache" in run.stdout
    changed = write(tmp_path / "changed.jsonl", [{**row, "response_A": "other"} for row in pairs(3)])
    evaluate("judgebench", "--data", changed, "--output", "changed.out", url=server.url)
    assert len(server.asked) == 12
    evaluate("judgebench", "--data", data, "--output", "anew.jsonl", "--no-cache", url=server.url)
    assert len(server.asked) == 18


def test_a_run_stops_before_its_cost_is_passed_and_goes_on_with_more(
    tmp_path: Path, server: EndpointServer
) -> None:
    """A call takes 7 + 3 tokens, which cost 37 millionths; its highest possible cost is more."""
    data = write(tmp_path / "rows.jsonl", pairs(20))
    price = ("--price-in", "1", "--price-out", "10", "--max-tokens", "50")
    arguments = ("judgebench", "--data", data, "--order", "given", *price)
    run = evaluate(*arguments, "--max-cost", "0.00001", url=server.url, code=1)
    assert server.asked == []
    limit = float(run.stderr.split("the next call may cost ")[1].split(";")[0]) + 10 * 37e-6
    run = evaluate(*arguments, "--max-cost", str(limit), url=server.url, code=1)
    assert "stopped: " in run.stderr
    assert "the same command resumes" in run.stderr
    calls = Path("judgebench.verdicts.jsonl.calls.jsonl").read_text().splitlines()
    assert 0 < len(calls) < 20
    assert len(calls) == len(server.asked) == len(results(tmp_path / "judgebench.verdicts.jsonl"))
    assert len(calls) * 37e-6 <= limit
    run = evaluate(*arguments, "--max-cost", str(limit), url=server.url, code=1)
    assert len(server.asked) == len(calls)
    run = evaluate(*arguments, "--max-cost", "1", url=server.url, code=0)
    assert len(results(tmp_path / "judgebench.verdicts.jsonl")) == len(server.asked) == 20
    assert f"cost      {20 * 37e-6:.4f} for 140 tokens read, 60 written" in run.stdout


def test_the_list_tells_what_each_benchmark_is_and_lacks() -> None:
    run = evaluate("--list", code=0)
    told = run.stdout.split("\nifbench-agentrm\n")[1].split("\njudgebench\n")[0]
    assert "train 444 (THU-KEG/IFBench)" in told
    assert "protocols tir, one-order" in told
    assert "licence   MIT-style" in told
    assert "missing   nothing" in told
    assert "missing   --data test=FILE: no public id is known" in run.stdout
