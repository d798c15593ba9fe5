"""Judge formats as users select them: `--format`, `Judge(format=...)`, `tirjudge formats`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import command
from tirjudge import Judge
from tirjudge.console_text import markdown_table
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import Context, environment_names
from tirjudge_environments.registry import ENVIRONMENTS, judge_cards

DOCS = Path(__file__).parents[3] / "docs"


def run(folder: Path, endpoint: EndpointServer, *arguments: str, code: int = 0) -> Result:
    given = ("--output", folder / "out.jsonl", *arguments, "--base-url", endpoint.url, "--model", "m")
    return command("judge", folder / "rows.jsonl", *given, code=code)


def write(folder: Path, *rows: dict[str, Any]) -> None:
    pair = {"id": "one", "prompt": "Which?", "responses": ["good", "bad"], "label": "A"}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows or (pair,)))


def only_row(folder: Path) -> dict[str, Any]:
    (line,) = (folder / "out.jsonl").read_text().splitlines()
    return json.loads(line)


def prefers_good(body: dict[str, Any]) -> dict[str, Any]:
    text = body["messages"][-1]["content"]
    return chat(f"<plan>p</plan><execution>e</execution><answer> [[{_shown(text)}]] </answer>")


def _shown(text: str) -> str:
    return "A" if "Assistant A's Answer]\ngood" in text else "B"


def test_a_pair_is_judged_in_both_orders_with_the_chosen_format(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = prefers_good
    write(tmp_path)
    run(tmp_path, endpoint, "--format", "j1-pav", "--option", "seed_prompt=plan")
    row = only_row(tmp_path)
    assert (row["format"], row["verdict"], row["correct"], row["scores"]) == ("j1-pav", "A", 1.0, None)
    assert [view["view"] for view in row["views"]] == ["AB", "BA"]
    assert all("<plan> and </plan>" in body["messages"][0]["content"] for body in endpoint.bodies)
    assert not any("stop" in body for body in endpoint.bodies)


def test_thinking_removed_by_the_endpoint_counts_as_thinking(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: chat("<answer>8</answer><answer>3</answer>", reasoning_content="why")
    write(tmp_path)
    run(tmp_path, endpoint, "--format", "judgelrm-pair")
    assert only_row(tmp_path)["verdict"] == "A"


def test_a_row_that_does_not_fit_the_format_fails_alone(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = prefers_good
    rows = [{"id": f"n{n}", "prompt": "p", "responses": ["good", "bad", "bad"][:n]} for n in (2, 3)]
    write(tmp_path, *rows)
    done = run(tmp_path, endpoint, "--format", "j1-pav", "--option", "seed_prompt=plan", code=1)
    assert only_row(tmp_path)["id"] == "n2"
    assert "a pair has two responses; task 'n3' has 3" in done.output + done.stderr


def test_a_judge_in_code_takes_a_format_and_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def good_first(context: Context) -> str:
        return f"<answer>[[{_shown(context.prompt.messages[0].content)}]]</answer>"

    monkeypatch.setattr(
        "tirjudge.judging.options.open_sandbox", lambda *args, **options: pytest.fail("it runs no programs")
    )
    with Judge(generator=ScriptedGenerator(good_first), format="j1-pav", options={"order": "both"}) as judge:
        result = judge.compare("Which?", "bad", "good")
        assert (result.kind, result.verdict, len(result.trajectories)) == ("j1-pav", "B", 2)
        with pytest.raises(ValueError, match="a pair has two responses"):
            judge.score("Which?", "good")
    with Judge(generator=ScriptedGenerator(["<score>7</score>"]), format="j1-pos") as judge:
        assert judge.score("Which?", "good").score == 7.0
    with pytest.raises(ValueError, match="no such option"):
        Judge(generator=ScriptedGenerator([]), format="j1-pos", options={"order": "both"}).open()


def test_the_formats_are_listed_with_descriptions() -> None:
    done = command("formats", code=0)
    named = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert tuple(named) == environment_names()
    assert "J1 section 2.5, Fig. 11" in done.stdout
    assert "seed_prompt" in done.stdout


def test_the_documented_table_is_up_to_date() -> None:
    page = (DOCS / "judges.md").read_text()
    built_in = ((name, card) for name, card in judge_cards().items() if name in ENVIRONMENTS.own)
    rows = [(f"`{name}`", card.views, card.answer, card.reward, card.source) for name, card in built_in]
    assert "\n".join(markdown_table(("judge", "sees", "answers", "reward", "source"), rows)) in page
