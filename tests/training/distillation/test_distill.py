"""Distillation from a real endpoint: its requests, the selection, and no request that is paid for twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse, Response

from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, serving, torn
from tests.training.conftest import tokenizer_of_words
from tests.training.teachers import COUNT, GIVEN_ANSWER, SCORE, STUDENT, fenced, native, word_count_tasks
from tirjudge.generation.endpoint import http
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_environments import ChatEncoder
from tirjudge_sandbox import open_sandbox
from tirjudge_training.distillation import best_dialogues
from tirjudge_training.distillation.best_dialogues import Distillation
from tirjudge_training.distillation.config import CorrectorConfig, TeacherConfig
from tirjudge_training.distillation.teacher_dialogues import TeacherUnavailable
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.sft import IGNORED

TOKENIZER = tokenizer_of_words()
ENCODER = ChatEncoder(TOKENIZER)
PAIR = f"I count.\n```python\n{COUNT}\n```\n"


@pytest.fixture
def server(running: EndpointServer, monkeypatch: pytest.MonkeyPatch) -> EndpointServer:
    """A teacher with native calls, retries without delay, and a sandbox that opens fast."""
    monkeypatch.setattr(best_dialogues, "open_sandbox", partial(open_sandbox, capacity=2, preload=()))
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(http, "LONGEST_PAUSE", 0.002)
    running.asked.clear()
    running.delay = 0.0
    running.script = native
    return running


class Progress(list[str]):
    """The lines that were reported."""

    def __call__(self, line: str) -> None:
        self.append(line)


def config(server: EndpointServer, **changes: Any) -> TeacherConfig:
    return TeacherConfig(model="teacher", base_url=server.url, **changes)


def distill(
    folder: Path, config: TeacherConfig, tasks: Sequence[FormattedTask], say: Progress | None = None
) -> JsonObject:
    with RunFolder(folder) as run:
        return Distillation(run, config, tasks, STUDENT, seed=0, say=Progress() if say is None else say).ask()


def rows(folder: Path, config: TeacherConfig, tasks: Sequence[FormattedTask]) -> list[JsonObject]:
    with RunFolder(folder) as run:
        lessons = Distillation(run, config, tasks, STUDENT, seed=0, say=Progress())
        return list(lessons.rows(ENCODER, TOKENIZER.eos_token_id))


def learned(row: JsonObject) -> list[str]:
    """Return the text over which the loss of a row's samples is taken."""
    return [ENCODER.decode([label for label in one["labels"] if label != IGNORED]) for one in row["kept"]]


@pytest.mark.parametrize(("tier", "script"), [("tools", native), ("turns", fenced)])
def test_right_dialogues_are_learned_in_the_students_format_with_any_protocol(
    server: EndpointServer, tmp_path: Path, tier: str, script: Any
) -> None:
    """Programs ran in our sandbox; their outputs, the prompt and hidden reasoning are not learned."""
    server.script = script
    tasks = word_count_tasks(4, hard=1)
    result = distill(tmp_path, config(server, tier=tier), tasks)
    assert (result["dialogues"], result["prompts_with_full_reward"]) == (4, 3)
    found = rows(tmp_path, config(server, tier=tier), tasks)
    assert [(row["index"], row["id"], len(row["kept"])) for row in found] == [
        (0, "task-0", 1), (1, "task-1", 1), (2, "task-2", 1), (3, "task-3", 0),
    ]  # fmt: skip
    for row, formatted in zip(found[:3], tasks, strict=False):
        (view,) = STUDENT["tir-pairwise"].views(formatted.task)
        letter = "AB"[view.order.index(formatted.task.label or 0)]
        assert learned(row) == [f"{PAIR}Counted.\n<preference>{letter}</preference>"]
        (sample,) = row["kept"]
        whole = ENCODER.decode(sample["ids"])
        assert "Which is better? You may run Python." in whole, "the prompt must be the student's"
        assert f"```output\n{'2' if letter == 'A' else '1'}\n```\n" in whole
        assert "Secret" not in whole


def test_a_teacher_at_an_address_with_a_query_is_asked_with_it(
    server: EndpointServer, tmp_path: Path
) -> None:
    """Azure's deployments need `api-version`."""
    address = f"{server.url}/openai/deployments/teacher?api-version=2024-10-21"
    teacher = TeacherConfig(model="teacher", base_url=address)
    distill(tmp_path, teacher, word_count_tasks(1))
    assert {asked.query for asked in server.asked} == {"api-version=2024-10-21"}


def test_views_linked_by_a_reward_are_kept_together_or_not_at_all(
    server: EndpointServer, tmp_path: Path
) -> None:
    tasks = word_count_tasks(2, hard=1, format="tir-pointwise")
    distill(tmp_path, config(server), tasks)
    right, wrong = rows(tmp_path, config(server), tasks)
    program = f"I count.\n```python\n{SCORE}\n```\nCounted.\n"
    assert learned(right) == [f"{program}<score>2</score>", f"{program}<score>9</score>"]
    assert wrong["kept"] == []


def test_of_several_dialogues_the_shortest_is_kept(server: EndpointServer, tmp_path: Path) -> None:
    texts = iter(["A long answer. ", "Short. ", "Of some length. ", ""])

    def script(body: dict[str, Any]) -> dict[str, Any]:
        return chat(f"{next(texts)}<preference>{'A' if body['seed'] else 'B'}</preference>")

    server.script = script
    four = config(server, samples=4, concurrency=1)
    task = next(
        formatted
        for formatted in word_count_tasks(8)
        if STUDENT["tir-pairwise"].views(formatted.task)[0].order[0] == formatted.task.label
    )
    distill(tmp_path, four, [task])
    assert len({body["seed"] for body in server.bodies}) == 4, "every dialogue has a seed of its own"
    assert [text.partition("<")[0] for text in learned(rows(tmp_path, four, [task])[0])] == [""]


@pytest.mark.slow
def test_no_finished_dialogue_is_requested_again_after_a_kill(server: EndpointServer, tmp_path: Path) -> None:
    tasks = word_count_tasks(24, hard=4)
    script = """
import sys
from functools import partial
from pathlib import Path
from tests.training.teachers import STUDENT, word_count_tasks
from tirjudge.storage.durable_files import RunFolder
from tirjudge_training.distillation.best_dialogues import Distillation
from tirjudge_training.distillation.config import TeacherConfig
with RunFolder(Path(sys.argv[1])) as run:
    config = TeacherConfig(model="teacher", base_url=sys.argv[2], concurrency=3)
    Distillation(run, config, word_count_tasks(24, hard=4), STUDENT, seed=0, say=print).ask()
"""
    server.delay = 0.05
    file = tmp_path / "dialogues.jsonl"
    with subprocess.Popen([sys.executable, "-c", script, tmp_path, server.url]) as asking:
        while not file.exists() or file.read_bytes().count(b"\n") < 5:
            assert asking.poll() is None
            time.sleep(0.01)
        asking.kill()
    had = {row["prompt"][0]["content"] for row in read_lines(file)}
    assert 5 <= len(had) < 24
    server.delay = 0.0
    result = distill(tmp_path, config(server), tasks)
    assert (result["dialogues"], result["prompts_with_full_reward"]) == (24, 20)
    begun = Counter(body["messages"][0]["content"] for body in server.bodies if len(body["messages"]) == 1)
    assert all(begun[prompt] == 1 for prompt in had)
    assert sum(begun.values()) <= 24 + 3, "only the three dialogues that were running may be requested again"
    server.asked.clear()
    assert distill(tmp_path, config(server), tasks) == result
    assert not server.asked


def test_an_edited_task_gets_a_new_dialogue(server: EndpointServer, tmp_path: Path) -> None:
    distill(tmp_path, config(server), word_count_tasks(3))
    server.asked.clear()
    edited = [*word_count_tasks(2), word_count_tasks(3, hard=1)[2]]
    result = distill(tmp_path, config(server), edited)
    assert len(server.asked) == 2, "one dialogue of two turns"
    assert (result["asked"], result["prompts_with_full_reward"]) == (3, 2)


def test_a_second_teacher_corrects_what_the_first_got_wrong(server: EndpointServer, tmp_path: Path) -> None:
    """RM-R1, App. B: the corrector sees the wrong trace and the right answer, the student neither."""
    two = config(server, corrector=CorrectorConfig(model="second"))
    tasks = word_count_tasks(5, hard=2)
    result = distill(tmp_path, two, tasks)
    assert (result["prompts_with_full_reward"], result["corrected"]) == (5, 2)
    seconds = [body for body in server.bodies if body["model"] == "second"]
    prompts = {body["messages"][0]["content"] for body in seconds}
    assert len(prompts) == 2
    assert all(f"<judgment>\n{PAIR}```output\n" in prompt and GIVEN_ANSWER in prompt for prompt in prompts)
    found = rows(tmp_path, two, tasks)
    assert all(len(row["kept"]) == 1 for row in found)
    assert not any("right answer" in ENCODER.decode(one["ids"]) for row in found for one in row["kept"])
    server.asked.clear()
    assert distill(tmp_path, two, tasks) == result
    assert not server.asked


def test_a_correction_that_is_wrong_again_is_not_kept(server: EndpointServer, tmp_path: Path) -> None:
    server.script = lambda body: chat("<preference>C</preference>")
    two = config(server, corrector=CorrectorConfig(model="second"))
    with pytest.raises(
        RuntimeError,
        match=r"none of the teacher's 2 dialogues has the full reward in the .*: inspect .*dialogues\.jsonl",
    ):
        distill(tmp_path, two, word_count_tasks(2))
    assert all(row["kept"] == [] for row in rows(tmp_path, two, word_count_tasks(2)))


def test_single_responses_are_not_corrected(server: EndpointServer, tmp_path: Path) -> None:
    two = config(server, corrector=CorrectorConfig(model="second"))
    distill(tmp_path, two, word_count_tasks(3, hard=1, format="tir-pointwise"))
    assert {body["model"] for body in server.bodies} == {"teacher"}


def test_the_token_cap_ends_the_requests_but_not_the_run(server: EndpointServer, tmp_path: Path) -> None:
    """Every request of the scripted teacher counts 10 tokens, so that a dialogue costs 20."""
    progress = Progress()
    capped = config(server, token_cap=70, concurrency=1)
    result = distill(tmp_path, capped, word_count_tasks(9), progress)
    assert (result["dialogues"], result["prompt_tokens"] + result["completion_tokens"]) == (4, 80)
    assert "the cap of 70 tokens is reached: continuing with these dialogues" in progress
    server.asked.clear()
    assert distill(tmp_path, capped, word_count_tasks(9)) == result
    assert not server.asked


def test_the_teacher_is_asked_until_enough_dialogues_are_right(
    server: EndpointServer, tmp_path: Path
) -> None:
    """Two of the tasks are too hard for the teacher, so that five right dialogues take seven."""
    tasks = word_count_tasks(9, hard=2)[::-1]
    enough = config(server, kept=5, concurrency=1)
    result = distill(tmp_path, enough, tasks)
    assert (result["prompts_with_full_reward"], result["dialogues"]) == (5, 7)
    server.asked.clear()
    assert distill(tmp_path, enough, tasks) == result
    assert not server.asked
    assert sum(len(row["kept"]) for row in rows(tmp_path, enough, tasks)) == 5


GARBAGE: dict[str, Response | dict[str, Any]] = {
    "401": failure(401, "bad key secret-key"),
    "html": HTMLResponse("<html><h1>Welcome</h1></html>"),
    "torn": torn(),
    # Answers with status 200 that are none of the teacher's.
    "failed": chat("", "network_error"),
    "withheld": chat(None, "SAFETY"),
    "unknown": chat("So", "ponies"),
}
REASONS = {
    "401": "401 Unauthorized: bad key [key]; set the key in TIRJUDGE_API_KEY or OPENAI_API_KEY",
    "html": "invalid answer: the body is a web page",
    "torn": "RemoteProtocolError",
    "failed": "the endpoint ended the answer with 'network_error'",
    "withheld": "the endpoint's content filter blocked the answer (SAFETY)",
    "unknown": "an unknown reason (ponies)",
}


@pytest.mark.parametrize("fault", every(3, GARBAGE))
def test_a_failing_teacher_stops_the_run_in_one_line_and_finished_dialogues_are_kept(
    server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("TIRJUDGE_TEACHER_API_KEY", "secret-key")
    strict = config(server, concurrency=4, give_up_after=3)
    distill(tmp_path, strict, word_count_tasks(2))
    assert server.asked[0].headers["authorization"] == "Bearer secret-key"
    server.script = lambda body: torn() if fault == "torn" else GARBAGE[fault]
    progress = Progress()
    with pytest.raises(TeacherUnavailable) as stopped:
        distill(tmp_path, strict, word_count_tasks(9), progress)
    line = str(stopped.value)
    assert line.startswith("the teacher failed in 3 consecutive dialogues, the last one because: ")
    assert REASONS[fault] in line
    assert line.endswith(f"the same command resumes with the 2 dialogues in {tmp_path / 'dialogues.jsonl'}")
    assert "\n" not in line
    everything = "".join([line, *progress, *(path.read_text() for path in tmp_path.iterdir())])
    assert "secret-key" not in everything
    server.script = native
    server.asked.clear()
    assert distill(tmp_path, strict, word_count_tasks(9))["dialogues"] == 9
    assert len(server.asked) == 2 * 7


def test_a_corrector_at_another_address_never_gets_the_teachers_key(
    server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "first")
    with serving() as other:
        other.script = native
        two = config(server, corrector=CorrectorConfig(model="second", base_url=other.url))
        distill(tmp_path / "a", two, word_count_tasks(2, hard=1))
        assert "authorization" not in other.asked[0].headers
        monkeypatch.setenv("TIRJUDGE_CORRECTOR_API_KEY", "second")
        distill(tmp_path / "b", two, word_count_tasks(2, hard=1))
        assert {one.headers["authorization"] for one in other.asked[2:]} == {"Bearer second"}
        assert {one.headers["authorization"] for one in server.asked} == {"Bearer first"}
