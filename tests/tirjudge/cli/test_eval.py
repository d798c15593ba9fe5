"""`tirjudge eval`: result files of tirjudge and of other projects, scored and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judged_files import judge_to
from tirjudge.cli import app

Figures = dict[str, dict[str, float]]


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def evaluated(folder: Path, *arguments: object, exit_code: int = 0) -> Figures:
    """Return the figures by protocol."""
    done = command(*arguments, "--json")
    assert done.exit_code == exit_code, done.output
    return {
        record["protocol"]: {name: one["value"] for name, one in record["figures"].items()}
        for record in json.loads(done.stdout)
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judged(folder: Path, server: EndpointServer, rows: list[dict[str, Any]], *options: object) -> Path:
    """Return the result file of `tirjudge judge` over the rows."""
    source = write(folder / "rows.jsonl", rows)
    output = folder / "verdicts.jsonl"
    done = command("judge", source, "--output", output, "--model", "m", "--base-url", server.url, *options)
    assert done.exit_code == 0, done.output
    return output


def pair(id: str, label: str, domain: str = "") -> dict[str, Any]:
    return {"id": id, "prompt": f"Q {id}", "responses": ["one", "two"], "label": label, "domain": domain}


def shown(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def test_a_run_in_both_orders_under_every_protocol_of_orders(tmp_path: Path, server: EndpointServer) -> None:
    """The judge knows `easy`, always takes the first place for `biased`, and does not answer `mute`."""

    def answer(body: dict[str, Any]) -> Any:
        text = shown(body)
        if "Q easy" in text:
            first_is_one = text.index("one") < text.index("two")
            return chat(f"<preference>{'A' if first_is_one else 'B'}</preference>")
        return chat("<preference>A</preference>" if "Q biased" in text else "I cannot say.")

    server.script = answer
    rows = [pair("easy", "A"), pair("biased", "B"), pair("mute", "A"), pair("even", "tie")]
    run = judged(tmp_path, server, rows, "--order", "both", "--no-tools")
    names = ("first-order", "second-order", "both-orders", "net-vote", "every-order", "position", "errors")
    options = [word for name in names for word in ("--protocol", name)]
    scores = evaluated(tmp_path, "score", run, *options, "--protocol", "three-class")
    assert [scores[name]["accuracy"] for name in names[:5]] == pytest.approx(
        [1 / 3, 2 / 3, 1 / 3, 1 / 3, 1 / 2]
    )
    assert scores["position"]["bias toward first"] == 1 / 4
    assert scores["errors"]["format errors"] == 4 / 8
    assert scores["three-class"]["agreement"] in (2 / 4, 3 / 4), "the gold tie is met by a silent judge"


def test_programs_are_told_apart_by_how_they_ended(tmp_path: Path, server: EndpointServer) -> None:
    programs = {"fine": "print(1)", "syntax": "print(1", "runtime": "1 / 0"}

    def answer(body: dict[str, Any]) -> Any:
        if any(message["role"] == "assistant" for message in body["messages"]):
            return chat("<preference>A</preference>")
        name = next(name for name in programs if f"Q {name}" in shown(body))
        return chat(f"```python\n{programs[name]}\n```")

    server.script = answer
    run = judged(
        tmp_path, server, [pair(name, "A") for name in programs], "--tier", "turns", "--allow-weak-isolation"
    )
    scores = evaluated(tmp_path, "score", run)
    assert scores["errors"] == pytest.approx(
        {
            "syntax errors": 1 / 3,
            "runtime errors": 1 / 3,
            "stopped at a limit": 0,
            "refused programs": 0,
            "format errors": 0,
        },
        nan_ok=True,
    )
    assert scores["cost"]["programs"] == 1
    assert scores["cost"]["seconds"] > 0


def test_episodes_of_a_training_run_tell_errors_and_cost(tmp_path: Path) -> None:
    def episode(sample: int, *statuses: str, stop: str = "verdict") -> dict[str, Any]:
        stderr = "  File x\nSyntaxError: '(' was never closed"
        verdict = {"choice": 0, "tie": False, "scores": {}} if stop == "verdict" else None
        programs = [{"source": "", "status": status, "stderr": stderr} for status in statuses]
        view = {"view": "AB", "order": [0, 1], "sample": sample, "stop": stop, "verdict": verdict}
        spent = {"prompt_tokens": 10, "completion_tokens": 20, "seconds": 0.5}
        trajectory = view | spent | {"programs": programs}
        return {"id": "t", "domain": "", "label": 0, "sample": sample, "trajectories": [trajectory]}

    run = write(
        tmp_path / "episodes.jsonl",
        [episode(0, "error", "ok"), episode(1, "cpu_limit", "sandbox_failed", stop="malformed")],
    )
    scores = evaluated(tmp_path, "score", run)
    assert scores["errors"]["syntax errors"] == pytest.approx(1 / 3)
    assert scores["errors"]["stopped at a limit"] == pytest.approx(1 / 3)
    assert scores["errors"]["format errors"] == 1 / 2
    assert scores["cost"]["completion tokens"] == 40
    assert scores["tir"]["accuracy"] == 1 / 2


def test_two_runs_are_compared_row_by_row(tmp_path: Path, server: EndpointServer) -> None:
    rows = [pair(str(number), "A") for number in range(12)]
    runs = []
    for letter in "BA":
        server.answers(chat(f"<preference>{letter}</preference>"))
        folder = tmp_path / letter
        folder.mkdir()
        runs.append(judged(folder, server, rows, "--order", "given", "--no-tools"))
    done = command("compare", *runs, "--protocol", "tir", "--json")
    assert done.exit_code == 0, done.output
    (record,) = json.loads(done.stdout)
    assert (record["gained"], record["lost"], record["common"]) == (12, 0, 12)
    assert record["p_value"] == pytest.approx(2 / 2**12)
    assert record["differences"]["accuracy"]["value"] == 1
    line, _, details = command("compare", *runs, "--protocol", "tir", "--full").stdout.partition("\n")
    assert line.startswith("accuracy +100.00 points [+100.00, +100.00], from 0.00 (")
    assert line.endswith("protocol tir, n = 12, p = 0.000488 (McNemar, exact)")
    assert "the second alone is right 12 times, the first alone 0 times: p = 0.000488 (McNemar" in details
    assert command("compare", *runs, "--protocol", "tir").stdout == f"{line}\n"


@pytest.mark.parametrize(
    "words",
    [
        "formats",
        "models list",
        "eval --list",
        "score --protocols",
        "score --published judgebench",
        "score verdicts.jsonl",
        "compare verdicts.jsonl verdicts.jsonl",
    ],
)
def test_json_is_all_that_a_command_prints(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    judge_to(Path("verdicts.jsonl"), [pair("x", "A")], lambda _: "<preference>A</preference>")
    done = command(*words.split(), "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)


def test_a_result_is_one_line_to_quote_and_its_details_have_no_lines_in_a_pipe(tmp_path: Path) -> None:
    run = benchmark_file("judgebench/judge-arena-hard-o1-mini.jsonl")
    brief = command("score", run, "--protocol", "net-vote")
    assert re.fullmatch(
        r"accuracy 65\.71 % \[\d\d\.\d\d, \d\d\.\d\d\], protocol net-vote, n = 350 \(.*o1-mini\.jsonl\)\n",
        brief.stdout,
    ), brief.stdout
    full = command("score", run, "--protocol", "net-vote", "--full")
    assert full.stdout.startswith(brief.stdout)
    assert "GPT-o1-mini" in full.stdout
    for shown in (full, command("score", "--protocols"), command("score", "--published", "judgebench")):
        assert not re.search("[\u2500-\u257f]", shown.stdout), "box drawing"


def reasons(*points: str) -> dict[str, Any]:
    listed = "\n".join(f"- {point}" for point in points)
    text = f"List of reasons:\n{listed}\nFinal assessment result:\n\\boxed{{A>B}}"
    return chat(f"<RESULT_START>\n{text}\n<RESULT_END>")


def test_reasons_are_matched_with_peoples_and_scored_again_without_a_model(
    tmp_path: Path, server: EndpointServer
) -> None:
    """Eq. 1 and 2: one reason cannot match two of people's; reasons after the fifth do not count."""
    server.answers(reasons("short", "rude", "three", "four", "five", "six"))
    row = pair("a", "A>B") | {"checklist": ["Response 1 is short", "Response 2 is rude", "wrong", "late"]}
    run = judged(tmp_path, server, [row, pair("b", "A")], "--format", "rationale", "--order", "given")
    assert all("asked" not in path.name for path in tmp_path.iterdir())

    scores = "R1@S1: 1.0\nR2@S2: 0.5\nR3@S1: 0.8\nR4@S0: 0.0"
    server.answers(chat(f"<RESULT_START>\n{scores}\n<RESULT_END>"))
    server.asked.clear()
    asking = ("--meta-judge", "meta", "--meta-judge-url", server.url)
    protocol = ("--protocol", "rationale-consistency")
    first = evaluated(tmp_path, "score", run, *protocol, *asking)
    assert first["rationale-consistency"] == {
        "rationale consistency": (1.0 + 0.5) / 4,
        "average precision": (1 + 1) / 4,
        "outcome accuracy": 1,
    }
    (question,) = map(shown, server.bodies)
    assert "five" in question
    assert "six" not in question

    server.asked.clear()
    assert evaluated(tmp_path, "score", run, *protocol) == first
    assert not server.asked


def test_rows_without_an_answer_of_the_meta_judge_are_left_out(
    tmp_path: Path, server: EndpointServer
) -> None:
    server.answers(reasons("short"))
    row = pair("a", "A>B") | {"checklist": ["Response 1 is short"]}
    run = judged(tmp_path, server, [row], "--format", "rationale")
    done = command("score", run, "--protocol", "rationale-consistency")
    assert done.exit_code == 2
    assert "not matched (give --meta-judge)" in done.stderr


def test_stored_answers_of_a_meta_judge(tmp_path: Path) -> None:
    """RationaleRM: a reason matches one of people's; reasons after the fifth do not count."""
    people, judge = ["p1", "p2", "p3"], [f"s{number}" for number in range(1, 7)]
    told = {"human-checklist": people, "m-checklist": judge, "domain": "code"}
    answers = ["- R1@S1: 0.75\n- R2@S1: 1.00\n- R3@S6: 1.00", "- R1@S0: 0\n- R2@S2: 0.50\n- R3@S3: 0.25", ""]
    rows = [
        {
            "metadata": told,
            "samples": [{"generated_text": f"(think)\n<RESULT_START>\n{answer}\n<RESULT_END>"}],
        }
        for answer in answers
    ]
    scores = evaluated(tmp_path, "score", write(tmp_path / "run.jsonl", rows))
    assert scores["rationale-consistency"]["rationale consistency"] == pytest.approx((1 / 3 + 0.75 / 3) / 2)


def test_alpaca_eval_annotations(tmp_path: Path) -> None:
    """Win rate 100 * mean(preference - 1), its standard error with n - 1; 0 is an old way to write a draw."""
    preferences = [1.0, 2.0, 1.5, 0, 1.9, None]
    annotations = [
        {
            "instruction": f"i{number}",
            "output_1": "a",
            "generator_1": "x",
            "output_2": "b",
            "preference": preference,
        }
        for number, preference in enumerate(preferences)
    ]
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(annotations, indent=1))
    scores = evaluated(tmp_path, "score", path)["win-rate"]
    wins = [0, 1, 0.5, 0.5, 0.9]
    mean = sum(wins) / 5
    assert scores["win rate"] == pytest.approx(mean)
    assert scores["standard error"] == pytest.approx(
        (sum((win - mean) ** 2 for win in wins) / 4) ** 0.5 / 5**0.5
    )
    assert scores["discrete win rate"] == pytest.approx((1 + 0.5 + 0.5 + 1) / 5)


def judgebench_row(*responses: str, label: str = "A>B") -> dict[str, Any]:
    judgments = [{"judgment": {"response": text}, "decision": None} for text in responses]
    return {"pair_id": "p", "source": "mmlu-pro-law", "label": label, "judgments": judgments}


@pytest.mark.parametrize(
    ("responses", "accuracy"),
    [
        (("[[A>>B]]", "[[B>A]]"), 1),
        (("[[A>B]]", "[[A=B]]"), 1),
        (("[[A>B]]", "[[A>B]]"), 0),
        (("[[A>B]] or [[B>A]]", "[[A=B]]"), 0),
        (("no verdict", "[[B>>A]]"), 1),
        (("[[A>B]] as I said [[A>B]]", "[[A=B]]"), 1),
    ],
)
def test_judgebench_verdicts(tmp_path: Path, responses: tuple[str, str], accuracy: int) -> None:
    run = write(tmp_path / "run.jsonl", [judgebench_row(*responses)])
    assert evaluated(tmp_path, "score", run, "--protocol", "net-vote")["net-vote"]["accuracy"] == accuracy


@pytest.mark.parametrize(
    ("rows", "arguments", "reason"),
    [
        ([], (), "is empty"),
        (
            [{"a": 1}],
            (),
            "its first row fits no format of stored outputs (alpaca_eval, episodes, judgebench,",
        ),
        (
            [judgebench_row("", "")],
            ("--format", "ours"),
            "no format of stored outputs 'ours'; there are alpaca_eval, episodes, judgebench,",
        ),
        (
            [judgebench_row("", "")],
            ("--protocol", "accuracy"),
            "no protocol 'accuracy'; there are both-orders",
        ),
        (
            [judgebench_row("", "", label="A")],
            (),
            'run.jsonl:1: label is "A", not one of A>B, B>A, A<B, B<A, A=B, B=A',
        ),
        (
            [judgebench_row("", "", "")],
            (),
            "run.jsonl:1: judgments has 3 judgments, not 1 (a single game) or 2",
        ),
        (
            [{"idx": 0, "pandalm_result": 1}],
            (),
            "run.jsonl:1: no annotators: give the test set with --labels",
        ),
        ([judgebench_row("", ""), judgebench_row("", "")], (), "run.jsonl:2: two rows have the id 'p'"),
        ([judgebench_row("", "")], ("--protocol", "rewardbench"), "is not a subset of RewardBench"),
        ([judgebench_row("", "") | {"pair_id": "\x1b[31m"}] * 2, (), "two rows have the id '\\x1b[31m'"),
    ],
)
def test_what_cannot_be_scored_is_told_in_one_line(
    tmp_path: Path, rows: list[dict[str, Any]], arguments: tuple[str, ...], reason: str
) -> None:
    done = command("score", write(tmp_path / "run.jsonl", rows), *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.output


def test_a_named_protocol_that_does_not_fit_is_said_beside_those_that_do(tmp_path: Path) -> None:
    run = write(tmp_path / "run.jsonl", [judgebench_row("[[A>B]]", "[[B>A]]")])
    done = command("score", run, "--protocol", "net-vote", "--protocol", "cost")
    assert done.exit_code == 1
    assert done.stderr == "tirjudge score: cost: row 'p' has no record of its cost\n"
    assert "accuracy" in done.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--replay", "a b.jsonl", "--protocol=tir"), "tirjudge score 'a b.jsonl' --protocol tir"),
        (("--compare", "a", "b", "--full"), "tirjudge compare a b --full"),
        (
            ("--replay=a", "--replay-format", "rmb", "--calibrate", "p"),
            "tirjudge score a --format rmb --calibrate p",
        ),
        (("--published", "judgebench"), "tirjudge score --published judgebench"),
    ],
)
def test_the_spelling_before_score_and_compare_is_answered_with_the_new_one(
    words: tuple[str, ...], line: str
) -> None:
    done = command("eval", *words)
    assert (done.exit_code, done.stderr) == (2, f"tirjudge eval: write: {line}\n")


def test_nothing_to_score_is_a_usage_error() -> None:
    done = command("eval")
    assert done.exit_code == 2
    assert "give a BENCHMARK" in done.stderr


def test_protocols_and_published_figures_are_listed() -> None:
    listed = command("score", "--protocols")
    assert listed.exit_code == 0
    assert "net-vote" in listed.stdout
    figures = command("score", "--published", "judgebench")
    assert figures.exit_code == 0
    assert "both-orders" in figures.stdout
    assert "…" not in listed.stdout + figures.stdout, "models that differ at the end of their names alone"
    unknown = command("score", "--published", "mt-bench")
    assert unknown.exit_code == 2
    assert "no published figures on 'mt-bench'; there are figures on any, arena-hard-v2" in unknown.stderr


def test_published_figures_stand_beside_ours_under_the_same_protocol(tmp_path: Path) -> None:
    run = benchmark_file("judgebench/judge-arena-hard-o1-mini.jsonl")
    done = command("score", run, "--protocol", "net-vote", "--full")
    (record,) = json.loads(command("score", run, "--protocol", "net-vote", "--json").stdout)
    assert {one["model"]: one["value"] for one in record["published"]} == pytest.approx(
        {"GPT-4o": 0.566, "GPT-o1-mini": 0.657, "Claude 3.5": 0.643, "DeepSeek-R1-671B": 0.731}
    )
    assert "under both-orders, not comparable with the above: J1, TIR-Judge" in done.stdout
