"""Verdicts that are clear to a person and not in the form that was asked for: `--ask-for-verdict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, pairs, results, through, write_rows
from tirjudge.judge import Judge
from tirjudge_environments.session import QUESTION

LOOSE = ["**A** is better.", "[A]", "a", "Ａ", "\u200bA", "A: 7/10, B: 3/10", "Score: 7", "Winner: A"]


def answering(loose: str) -> Any:
    def script(body: dict[str, Any]) -> dict[str, Any]:
        asked = body["messages"][-1]["content"].startswith(QUESTION)
        return chat("<preference>A</preference>" if asked else loose)

    return script


@pytest.mark.parametrize("loose", LOOSE)
def test_one_more_turn_asks_for_the_tag_alone(tmp_path: Path, endpoint: EndpointServer, loose: str) -> None:
    """The turn is counted, priced and recorded, and the verdicts can be read again from the file."""
    endpoint.script = answering(loose)
    write_rows(tmp_path / "rows.jsonl", pairs(3))
    prices = ("--price-in", "1", "--price-out", "1", "--json")
    options = ("--no-tools", "--order", "given", "--ask-for-verdict", *through(endpoint))
    run = judge(tmp_path, "rows.jsonl", *options, *prices, code=0)
    assert len(endpoint.asked) == 6
    rows = results(tmp_path / "rows.verdicts.jsonl")
    assert [row["verdict"] for row in rows] == ["A"] * 3
    for row in rows:
        (view,) = row["views"]
        assert [(part["kind"], part["text"]) for part in view["segments"]] == [
            ("reasoning", loose),
            ("question", f"{QUESTION} The form: <preference>A</preference> or <preference>B</preference>"),
            ("reasoning", "<preference>A</preference>"),
        ]
        assert (row["prompt_tokens"], row["completion_tokens"]) == (14, 6)
        # Training rewards the form as well.
        assert view["reward"]["total"] == 0.0
    assert '"cost": 6e-05' in run.stdout
    invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path, code=0)
    shown = invoke("show", "rows.verdicts.jsonl", "p0", folder=tmp_path)
    assert "asked for the verdict alone" in shown.stdout


def test_the_verdict_behind_the_question_is_read_again_as_a_turn_of_its_own(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    """Without the start of the answer that the format writes for the model."""
    endpoint.script = lambda body: chat(
        "<answer>7</answer><answer>3</answer>"
        if body["messages"][-1]["content"].startswith(QUESTION)
        else "They differ.</think>The first one."
    )
    options = ("--format", "judgelrm-pair", "--ask-for-verdict", *through(endpoint))
    judge(tmp_path, pairs(1), *options, code=0)
    (row,) = results(tmp_path / "rows.verdicts.jsonl")
    assert row["verdict"] == "A"
    invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path, code=0)


def test_strict_reading_is_the_rule(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = answering("**A** is better.")
    run = judge(tmp_path, pairs(2), "--no-tools", *through(endpoint), code=1)
    assert "--retry-malformed --ask-for-verdict" in run.stderr.splitlines()[-1]
    assert [row["verdict"] for row in results(tmp_path / "rows.verdicts.jsonl")] == [None, None]
    advised = ("--retry-malformed", "--ask-for-verdict")
    judge(tmp_path, "rows.jsonl", "--no-tools", "--overwrite", *advised, *through(endpoint), code=2)
    # The advice works when typed.
    assert judge(tmp_path, "rows.jsonl", "--no-tools", *advised, *through(endpoint)).returncode == 0
    exact = judge(tmp_path, "rows.jsonl", "--exact", "--ask-for-verdict", *through(endpoint), code=2)
    assert "leave out --ask-for-verdict" in exact.stderr
    local = judge(tmp_path, "rows.jsonl", "--ask-for-verdict", code=2)
    assert "--base-url" in local.stderr
    invoke("eval", "judgebench", "--ask-for-verdict", *through(endpoint), folder=tmp_path, code=2)


def test_a_run_with_other_rows_asked_is_another_run(tmp_path: Path, endpoint: EndpointServer) -> None:
    """Except for rows without a verdict, which the option is advised for."""
    endpoint.script = answering("**A** is better.")
    strict = ("--no-tools", *through(endpoint))
    judge(tmp_path, pairs(2), *strict, "--limit", "1")
    resumed = judge(tmp_path, "rows.jsonl", *strict, "--ask-for-verdict", code=2)
    assert "ask_for_verdict was false and is now true" in resumed.stderr
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 1


def test_labels_that_come_later_give_no_reward_for_asking(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = answering("**A** is better.")
    options = ("--no-tools", "--order", "given", "--ask-for-verdict", *through(endpoint))
    rows = [{name: value for name, value in row.items() if name != "label"} for row in pairs(2)]
    assert judge(tmp_path, rows, *options).returncode == 0
    assert judge(tmp_path, [row | {"label": "A"} for row in rows], *options).returncode == 0
    for row in results(tmp_path / "rows.verdicts.jsonl"):
        assert (row["verdict"], row["correct"]) == ("A", 1.0)
        assert not any("reward" in view for view in row["views"])


def test_rewards_are_refused(endpoint: EndpointServer) -> None:
    options: Any = {"model": "m", "base_url": endpoint.url, "tools": False, "ask_for_verdict": True}
    with Judge(**options) as lenient, pytest.raises(ValueError, match="read verdicts strictly"):
        lenient.reward_group("Which?", ["x", "y"])


def test_only_rows_without_a_verdict_are_judged_again(tmp_path: Path, endpoint: EndpointServer) -> None:
    """The others keep their verdicts, and a file without such rows stays as it is."""
    endpoint.script = lambda body: chat(
        "**A** is better." if "Question 1" in str(body["messages"]) else "<preference>A</preference>"
    )
    options = ("--no-tools", "--order", "given", *through(endpoint))
    assert judge(tmp_path, pairs(3), *options).returncode == 0
    before = {row["id"]: row for row in results(tmp_path / "rows.verdicts.jsonl")}
    assert [before[name]["verdict"] for name in ("p0", "p1", "p2")] == ["A", None, "A"]
    endpoint.asked.clear()
    endpoint.script = answering("**A** is better.")
    run = judge(tmp_path, "rows.jsonl", *options, "--retry-malformed", "--ask-for-verdict", code=0)
    assert "1 of 3 rows have no verdict, and are judged again" in run.stderr
    assert len(endpoint.asked) == 2
    assert "judged    3 rows, 3 with a verdict" in run.stdout
    after = {row["id"]: row for row in results(tmp_path / "rows.verdicts.jsonl")}
    assert (after["p0"], after["p2"]) == (before["p0"], before["p2"])
    assert after["p1"]["verdict"] == "A"
    content = (tmp_path / "rows.verdicts.jsonl").read_text()
    assert judge(tmp_path, "rows.jsonl", *options, "--retry-malformed").returncode == 0
    assert (tmp_path / "rows.verdicts.jsonl").read_text() == content
    assert len(endpoint.asked) == 2
