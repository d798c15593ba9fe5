"""`tirjudge score` and `tirjudge compare`: result files of tirjudge and of other projects."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import command, results
from tests.tirjudge.judge_command import write_rows as write
from tests.tirjudge.judged_files import asking, edit, judge_to
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import score
from tirjudge.evaluation.stored_outputs import open_replay
from tirjudge_environments import Context


def figures(path: Path, protocol: str) -> dict[str, float]:
    found = score(open_protocol(protocol), open_replay(path), resamples=10)
    return {name: one.value for name, one in found.estimates.items()}


def pair(id: str, label: str, domain: str = "") -> dict[str, Any]:
    return {"id": id, "prompt": f"Q {id}", "responses": ["one", "two"], "label": label, "domain": domain}


def test_a_run_in_both_orders_under_every_protocol_of_orders(tmp_path: Path) -> None:
    """The judge knows `easy`, always takes the first place for `biased`, and does not answer `mute`."""

    def answer(context: Context) -> str:
        text = context.prompt.messages[-1].content
        if "Q easy" in text:
            return f"<preference>{'A' if text.index('one') < text.index('two') else 'B'}</preference>"
        return "<preference>A</preference>" if "Q biased" in text else "I cannot say."

    rows = [pair("easy", "A"), pair("biased", "B"), pair("mute", "A"), pair("even", "tie")]
    run = judge_to(tmp_path / "run.jsonl", rows, answer, order="both", tools=False)
    names = ("first-order", "second-order", "both-orders", "net-vote", "every-order")
    found = [figures(run, name)["accuracy"] for name in names]
    assert found == pytest.approx([1 / 3, 2 / 3, 1 / 3, 1 / 3, 1 / 2])
    assert figures(run, "position")["bias toward first"] == 1 / 4
    assert figures(run, "errors")["format errors"] == 4 / 8
    # The gold tie is met by a silent judge.
    assert figures(run, "three-class")["agreement"] in (2 / 4, 3 / 4)


def test_programs_are_told_apart_by_how_they_ended(tmp_path: Path) -> None:
    programs = {"fine": "print(1)", "syntax": "print(1", "runtime": "1 / 0"}

    def answer(context: Context) -> str:
        if context.segments:
            return "<preference>A</preference>"
        text = context.prompt.messages[-1].content
        return f"```python\n{next(programs[name] for name in programs if f'Q {name}' in text)}\n```\n"

    run = judge_to(tmp_path / "run.jsonl", [pair(name, "A") for name in programs], answer)
    none = ("stopped at a limit", "refused programs", "format errors")
    wanted = {"syntax errors": 1 / 3, "runtime errors": 1 / 3} | dict.fromkeys(none, 0)
    assert figures(run, "errors") == pytest.approx(wanted)
    assert figures(run, "cost")["programs"] == 1
    assert figures(run, "cost")["seconds"] > 0


def test_a_row_that_lacks_a_part_is_counted_or_refused_in_one_line(tmp_path: Path) -> None:
    """Scoring a file also counts its program evidence, and anybody may have written the file."""
    path = judge_to(tmp_path / "run.jsonl", [pair("x", "A")], asking("print(1)", lambda shown: "A"))
    edit(path, lambda rows: rows[0].pop("programs"))
    assert "evidence " in command("score", path).stdout
    edit(path, lambda rows: rows[0]["views"][0]["segments"][1].pop("text"))
    refused = command("score", path, code=2)
    assert refused.stderr == f"tirjudge score: {path}:1: no column 'views.0.segments.1.text'\n"


def test_two_runs_are_compared_row_by_row(tmp_path: Path) -> None:
    rows = [pair(str(number), "A") for number in range(12)]

    def always(letter: str) -> Callable[[Context], str]:
        return lambda _: f"<preference>{letter}</preference>"

    runs = [judge_to(tmp_path / letter, rows, always(letter), order="given", tools=False) for letter in "BA"]
    done = command("compare", *runs, "--protocol", "tir", "--json", code=0)
    (record,) = json.loads(done.stdout)
    assert (record["gained"], record["lost"], record["common"]) == (12, 0, 12)
    assert record["p_value"] == pytest.approx(1 / 2**12)  # the mid-p value
    line, _, details = command("compare", *runs, "--protocol", "tir", "--full").stdout.partition("\n")
    # Agresti and Min 2005 by hand: 12 / 14, and 1.96 times the root of (13 / 14 - (12 / 14)²) / 14.
    assert line.startswith("accuracy +100.00 points [+62.65, +100.00], from 0.00 (")
    assert line.endswith("protocol tir, n = 12, p = 0.000244 (McNemar, mid-p)")
    assert "the second is better 12 times, the first 0 times: p = 0.000244" in details
    first = "A: 12 of 12 verdicts name the response shown first (--order both shows each row in both orders)"
    assert command("compare", *runs, "--protocol", "tir").stdout == f"{line}\n{first}\n"


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
    rows, run = write(tmp_path / "rows.jsonl", [row, pair("b", "A")]), tmp_path / "verdicts.jsonl"
    options = ("--format", "rationale", "--order", "given", "--model", "m", "--base-url", server.url)
    command("judge", rows, "--output", run, *options, code=0)
    (given,) = (one["views"][0]["verdict"]["parsed"] for one in results(run) if one["id"] == "a")
    assert given == {"reasons": ["short", "rude", "three", "four", "five", "six"], "strength": 1}
    scored = ("score", run, "--protocol", "rationale-consistency", "--json")
    unmatched = command(*scored, code=2)
    assert "not matched (give --meta-judge)" in unmatched.stderr

    server.answers(chat("<RESULT_START>\nR1@S1: 1.0\nR2@S2: 0.5\nR3@S1: 0.8\nR4@S0: 0.0\n<RESULT_END>"))
    server.asked.clear()
    first = command(*scored, "--meta-judge", "meta", "--meta-judge-url", server.url)
    (record,) = json.loads(first.stdout)
    assert {name: one["value"] for name, one in record["figures"].items()} == {
        "rationale consistency": (1.0 + 0.5) / 4,
        "average precision": (1 + 1) / 4,
        "outcome accuracy": 1,
    }
    (question,) = (body["messages"][-1]["content"] for body in server.bodies)
    assert "five" in question
    assert "six" not in question
    server.asked.clear()
    assert command(*scored).stdout == first.stdout
    assert not server.asked
    packed = tmp_path / "verdicts.jsonl.gz"
    packed.write_bytes(gzip.compress(run.read_bytes()))
    again = command("score", packed, *scored[2:], "--meta-judge", "meta", "--meta-judge-url", server.url)
    assert again.stdout == first.stdout


def test_stored_answers_of_a_meta_judge(tmp_path: Path) -> None:
    """RationaleRM: a reason matches one of people's; reasons after the fifth do not count."""
    people, judge = ["p1", "p2", "p3"], [f"s{number}" for number in range(1, 7)]
    told = {"human-checklist": people, "m-checklist": judge, "domain": "code"}
    answers = ["- R1@S1: 0.75\n- R2@S1: 1.00\n- R3@S6: 1.00", "- R1@S0: 0\n- R2@S2: 0.50\n- R3@S3: 0.25", ""]
    texts = [f"(think)\n<RESULT_START>\n{answer}\n<RESULT_END>" for answer in answers]
    rows = [{"metadata": told, "samples": [{"generated_text": text}]} for text in texts]
    scores = figures(write(tmp_path / "run.jsonl", rows), "rationale-consistency")
    assert scores["rationale consistency"] == pytest.approx((1 / 3 + 0.75 / 3) / 2)


def test_alpaca_eval_annotations(tmp_path: Path) -> None:
    """0 is an old way to write a draw, and a missing preference does not count."""
    rows = [
        {"instruction": f"i{n}", "output_1": "a", "generator_1": "x", "output_2": "b", "preference": one}
        for n, one in enumerate([1.0, 2.0, 1.5, 0, 1.9, None])
    ]
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(rows, indent=1))
    scores = figures(path, "win-rate")
    assert scores["win rate"] == pytest.approx((0 + 1 + 0.5 + 0.5 + 0.9) / 5)
    assert scores["discrete win rate"] == pytest.approx((1 + 0.5 + 0.5 + 1) / 5)


def test_every_model_of_alpaca_eval_annotations_has_a_line(tmp_path: Path) -> None:
    """Model m1 wins every instruction and m2 none."""
    rows = [
        {"instruction": f"i{n}", "output_1": "a", "generator_1": "x", "output_2": "b", "generator_2": model}
        | {"preference": preference}
        for model, preference in (("m1", 2.0), ("m2", 1.0))
        for n in range(12)
    ]
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(rows))
    run = command("score", path)
    assert [line.split(" [")[0] for line in run.stdout.splitlines() if "win-rate" in line] == [
        "win rate of m1 100.00 %",
        "win rate of m2 0.00 %",
    ]


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
    assert figures(run, "net-vote")["accuracy"] == accuracy


def test_a_named_protocol_that_does_not_fit_is_said_beside_those_that_do(tmp_path: Path) -> None:
    run = write(tmp_path / "run.jsonl", [judgebench_row("[[A>B]]", "[[B>A]]")])
    done = command("score", run, "--protocol", "net-vote", "--protocol", "cost", code=1)
    assert done.stderr == "tirjudge score: cost: row 'p' has no record of its cost\n"
    assert "accuracy" in done.stdout


def test_protocols_and_published_figures_are_listed() -> None:
    listed, published = command("score", "--protocols"), command("score", "--published", "judgebench")
    assert (listed.exit_code, published.exit_code) == (0, 0)
    assert "net-vote" in listed.stdout
    assert "both-orders" in published.stdout
    assert "…" not in listed.stdout + published.stdout, "models that differ at the end of their names alone"


def test_published_figures_stand_beside_ours_under_the_same_protocol() -> None:
    run = benchmark_file("judgebench/judge-arena-hard-o1-mini.jsonl")
    done = command("score", run, "--protocol", "net-vote", "--full")
    (record,) = json.loads(command("score", run, "--protocol", "net-vote", "--json").stdout)
    assert {one["model"]: one["value"] for one in record["published"]} == pytest.approx(
        {"GPT-4o": 0.566, "GPT-o1-mini": 0.657, "Claude 3.5": 0.643, "DeepSeek-R1-671B": 0.731}
    )
    assert "under both-orders, not comparable with the above: J1, TIR-Judge" in done.stdout
