"""The corpora of the text-only judges, built from small datasets with the schema of the real ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from typer.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import command
from tests.training.hub import Hub
from tirjudge_training.corpora.sources.sampled_answers import NOISE
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.own_rows import RowData

SKYWORK = {
    "magpie_ultra": 3,
    "magpie_pro_llama3.1": 8,
    "offsetbias": 4,
    "helpsteer2": 3,
    "wildguard": 2,
    "magpie_pro": 1,
}


@pytest.fixture
def server(running: EndpointServer) -> EndpointServer:
    running.asked.clear()
    return running


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A mirror of the hub, with the library's cache in a temporary folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("TIRJUDGE_HUB_MIRROR", str(tmp_path / "hub"))
    return Hub(tmp_path / "hub")


def build(folder: Path, corpus: str, *words: str, code: int | None = None) -> Result:
    output = ("--output", folder / corpus, "--against", "-")
    return command("data", "build", corpus, *output, *words, code=code)


def tasks(folder: Path, corpus: str, judge: str) -> list[Any]:
    """Read a corpus as training does, with the judge that it is made for."""
    data = RowData(DataConfig(train=folder / corpus), {"judge": EnvironmentConfig(name=judge)})
    return [formatted.task for formatted in (*data.prompts(None, 0), *data.validation(10_000))]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_judgelm_100k_keeps_the_scores_of_gpt_4(hub: Hub, tmp_path: Path) -> None:
    """The repository is a plain folder whose other files have other columns."""
    scores = [[8.0, 3.0], [5.0, 5.0], [2.5, 9.0], [-1.0, -1.0], [7.0]]
    lines(
        hub.folder / "BAAI/JudgeLM-100K/judgelm_train_100k.jsonl",
        [
            {
                "question_body": f"\nq{n}?",
                "answer1_body": "one",
                "answer2_body": "two",
                "score": score,
                "x": n,
            }
            for n, score in enumerate([*scores, [8.0, 3.0]])
        ],
    )
    lines(hub.folder / "BAAI/JudgeLM-100K/judgelm_val_5k.jsonl", [{"question_id": 0, "text": "8 7"}])
    build(tmp_path, "judgelrm", code=0)
    found = tasks(tmp_path, "judgelrm", "judgelrm-pair")
    assert {(task.prompt[0].content, task.gold["scores"], task.label) for task in found} == {
        ("q0?", (8.0, 3.0), 0),
        ("q1?", (5.0, 5.0), None),
        ("q2?", (2.5, 9.0), 1),
        ("q5?", (8.0, 3.0), 0),
    }
    assert {task.candidates for task in found} == {("one", "two")}
    report = json.loads((tmp_path / "judgelrm" / "report.json").read_text())
    assert report["judge-lm"]["left_out"] == {"no two scores": 2}


def add_rm_r1(hub: Hub) -> None:
    pairs = [
        {
            "source": source,
            "chosen": [*user(f"{source} {n}"), {"role": "assistant", "content": "good"}],
            "rejected": [*user(f"{source} {n}"), {"role": "assistant", "content": "bad"}],
        }
        for source, count in SKYWORK.items()
        for n in range(count)
    ]
    parted = [*user("offsetbias 0"), {"role": "assistant", "content": "x"}, *user("more")]
    pairs.append({**pairs[11], "rejected": [*parted, {"role": "assistant", "content": "bad"}]})
    hub.add("Skywork/Skywork-Reward-Preference-80K-v0.2", {("default", "train"): pairs})
    code = [{"input": f"code {n}", "accepted": "right", "rejected": "wrong", "ID": n} for n in range(9)]
    hub.add("Vezora/Code-Preference-Pairs", {("default", "train"): code})
    steps = [
        {"prompt": "sum", "initial_reason_steps": "First. ", "full_chosen": f"{n}", "full_rejected": f"-{n}"}
        for n in range(1, 6)
    ]
    hub.add("xinlai/Math-Step-DPO-10K", {("default", "train"): steps})


def test_rm_r1_has_the_rows_of_its_table_5(hub: Hub, tmp_path: Path) -> None:
    """All of Skywork except `magpie_ultra`, the wanted number of code pairs, and every pair of steps."""
    add_rm_r1(hub)
    build(tmp_path, "rm-r1", "--set", "sources.code-preference-pairs.pairwise=4", code=0)
    found = tasks(tmp_path, "rm-r1", "rm-r1")
    assert Counter(task.domain for task in found) == {"reasoning": 8 + 1 + 4 + 5, "chat": 4 + 3, "safety": 2}
    right = {(task.prompt[0].content, task.candidates[task.label]) for task in found}
    assert {answer for prompt, answer in right if prompt == "sum"} == {f"First. {n}" for n in range(1, 6)}
    assert {answer for prompt, answer in right if prompt.startswith("code")} == {"right"}
    assert {task.label for task in found} == {0, 1}, "the position of the better response is random"
    assert not any("ultra" in prompt for prompt, _ in right)
    report = json.loads((tmp_path / "rm-r1" / "report.json").read_text())
    assert report["skywork"]["left_out"] == {
        "of magpie_ultra": 3,
        "conversations that differ before their last turn": 1,
    }


def wild_chat(hub: Hub) -> None:
    def row(text: str, **more: Any) -> dict[str, Any]:
        turns = [*user(text), {"role": "assistant", "content": "ChatGPT's"}]
        return {"conversation": turns, "language": "English", "toxic": False, "turn": 1} | more

    rows = [row(f"Describe {{city}} {n}.") for n in range(6)]
    rows += [row("Bonjour", language="French"), row("!", toxic=True), row("Same again"), row(" ")]
    hub.add("allenai/WildChat", {("default", "train"): rows})
    problems = [
        {"problem": f"What is {n} + {n}?", "solution": f"So \\boxed{{{2 * n}}}.", "level": "1", "type": "x"}
        for n in range(4)
    ]
    hub.add("DigitalLearningGmbH/MATH-lighteval", {("default", "train"): problems})


def generator(body: dict[str, Any]) -> dict[str, Any]:
    """A model that writes noisy instructions except for one prompt, and adds correctly every other time."""
    [message] = body["messages"]
    text = message["content"]
    if "<instruction>" in text:
        asked = text.split("<instruction>\n")[1].split("\n</instruction>")[0]
        return chat(asked if asked == "Same again" else f"<think>hm</think>\n{asked} NOISY ")
    if text.startswith("What is"):
        n = int(text.split()[2])
        return chat(f"It is \\boxed{{{2 * n + body['seed'] % 2}}}.")
    return chat(f"answer to: {text}")


@pytest.mark.slow
def test_the_pairs_of_j1_are_written_by_a_generator(hub: Hub, server: EndpointServer, tmp_path: Path) -> None:
    wild_chat(hub)
    server.script = generator
    wanted = ["--set", "sources.wild-chat.pairwise=7", "--set", "sources.math.pairwise=2"]
    wanted += ["--set", "sampling.samples=6", "--generator", f"m@{server.url}"]
    done = build(tmp_path, "j1", *wanted, code=1)
    assert "wild-chat" in done.stderr, "only six of seven prompts get a noisy instruction"
    found = tasks(tmp_path, "j1", "j1-pav")
    chats = [task for task in found if task.domain == "chat"]
    assert len(chats) == 6
    for task in chats:
        prompt = task.prompt[0].content
        good, bad = task.candidates[task.label], task.candidates[1 - task.label]
        assert (good, bad) == (f"answer to: {prompt}", f"answer to: {prompt} NOISY")
    sums = [task for task in found if task.domain == "math"]
    assert len(sums) == 2
    for task in sums:
        n = int(task.prompt[0].content.split()[2])
        assert [f"\\boxed{{{2 * n}}}" in text for text in task.candidates].index(True) == task.label
        assert f"\\boxed{{{2 * n + 1}}}" in task.candidates[1 - task.label]
    noise = next(body for body in server.bodies if "<instruction>" in body["messages"][0]["content"])
    assert noise["messages"][0]["content"].startswith(NOISE.split("{")[0])
    server.asked.clear()
    assert build(tmp_path, "j1", *wanted).exit_code == 1
    assert not server.asked, "a finished build sends no request"


def decomposition(body: dict[str, Any]) -> dict[str, Any]:
    text = body["messages"][0]["content"]
    count = 2 if "too few" in text else 3
    if "unreadable" in text:
        return chat("Sure!")
    listed = "\n".join(f"- C{n}: Response 1 lacks part {n}" for n in range(1, count + 1))
    return chat(f"<RESULT_START>\nCLAIM_COUNT={count}\nCLAIMS:\n{listed}\n<RESULT_END>")


def test_remarks_of_helpsteer3_become_checklists(hub: Hub, server: EndpointServer, tmp_path: Path) -> None:
    remarks = ["better", "too few", "unreadable", "", "good", "equal"]
    preferences = [-3, 1, 1, 1, 2, 0]
    rows = [
        {
            "domain": "general",
            "context": user(f"q{n}"),
            "response1": "one",
            "response2": "two",
            "overall_preference": preference,
            "individual_preference": [
                {"score": 1, "reasoning": remark, "feedback1": "f1", "feedback2": None}
            ],
        }
        for n, (remark, preference) in enumerate(zip(remarks, preferences, strict=True))
    ]
    hub.add("nvidia/HelpSteer3", {("preference", "train"): rows})
    server.script = decomposition
    build(tmp_path, "rationale", "--generator", f"m@{server.url}", code=0)
    found = {task.prompt[0].content: task for task in tasks(tmp_path, "rationale", "rationale")}
    checklist = tuple(f"Response 1 lacks part {n}" for n in range(1, 4))
    assert {name: (task.label, dict(task.gold)) for name, task in found.items()} == {
        "q0": (0, {"checklist": checklist, "strength": 2}),
        "q4": (1, {"checklist": checklist, "strength": 2}),
        "q5": (None, {"checklist": checklist, "strength": 0}),
    }
    assert {task.candidates for task in found.values()} == {("one", "two")}
    left_out = json.loads((tmp_path / "rationale" / "report.json").read_text())
    assert left_out["help-steer-3-checklists"]["left_out"] == {
        "no remarks": 1,
        "a checklist with fewer than 3 or more than 7 points": 1,
        "a decomposition that cannot be read": 1,
    }
    assert {body["temperature"] for body in server.bodies} == {0.0}
