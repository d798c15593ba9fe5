"""The command `tirjudge train --distill`, and the checks before any request is paid for."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.training.miniature import MINI, MODEL, inputs
from tests.training.test_cli import SMALL as ONE_STEP
from tests.training.train_command import train
from tirjudge.generation.endpoint import http
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.run import preflight

SMALL = ONE_STEP | {"teacher.prompts": 12, "teacher.give_up_after": 3, "validation.n": 1, "heldout.n": 1}


@pytest.fixture
def server(running: EndpointServer, monkeypatch: pytest.MonkeyPatch) -> EndpointServer:
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(http, "LONGEST_PAUSE", 0.002)
    running.asked.clear()
    running.script = lucky
    return running


def lucky(body: dict[str, Any]) -> dict[str, Any]:
    """A teacher that always prefers the first response, which is right for half of the pairs."""
    pair = "Response B" in body["messages"][0]["content"]
    return chat("The first.\n<preference>A</preference>" if pair else "Fine.\n<score>7</score>")


def distill(
    folder: Path, url: str, *words: str, model: str = MODEL, code: int | None = None, **more: object
) -> Result:
    settings = {**inputs(), **SMALL, **more}
    settings = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    teacher = ("--distill", "--teacher", "gemini", "--teacher-base-url", url, "--model", model)
    return train("--recipe", MINI, "--output", str(folder), *teacher, *settings, *words, code=code)


@pytest.mark.slow
def test_a_teachers_dialogues_become_a_trained_judge(
    server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages leave their files, the teacher is asked once, and its key is stored nowhere."""
    monkeypatch.setenv("TIRJUDGE_TEACHER_API_KEY", "secret-key")
    done = distill(tmp_path, server.url, code=0)
    assert done.stdout.strip() == str(tmp_path / "select" / "model")
    assert server.asked[0].headers["authorization"] == "Bearer secret-key"
    stages = [word for line in done.stderr.splitlines() if (word := line.split()[1]).endswith(":")]
    assert list(dict.fromkeys(stages)) == [
        "teacher:", "heldout-base:", "lessons:", "sft:", "heldout-sft:", "rl:", "select:", "heldout-rl:",
    ]  # fmt: skip
    taught = json.loads((tmp_path / "teacher" / "done.json").read_text())
    kept = [row for row in read_lines(tmp_path / "lessons" / "samples.jsonl") if row["kept"]]
    assert 0 < len(kept) == taught["prompts_with_full_reward"] < 12
    assert json.loads((tmp_path / "sft" / "done.json").read_text())["samples"] == len(kept)
    assert {"base", "sft", "rl"} <= set((tmp_path / "results.md").read_text().split())
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"secret-key" in content for content in files)
    assert "secret-key" not in done.stderr

    server.asked.clear()
    distill(
        tmp_path, "http://127.0.0.1:1/elsewhere", code=0
    )  # a finished run needs no teacher, so its address may change
    assert not server.asked
    other = distill(tmp_path, server.url, **{"teacher.samples": 2})
    assert (other.exit_code, "teacher.samples was" in other.stderr) == (2, True)


def test_a_run_resumes_after_its_teacher_failed(server: EndpointServer, tmp_path: Path) -> None:
    """The teacher is asked before any training; once it answers, even elsewhere, the same command resumes."""
    server.script = lambda body: failure(401, "no such key")
    down = distill(tmp_path, server.url, code=1)
    *_, last = down.stderr.splitlines()
    assert "401 Unauthorized" in last
    assert "TIRJUDGE_API_KEY" in last
    assert last.endswith(f"{tmp_path}/teacher/dialogues.jsonl")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"teacher"}
    assert not (tmp_path / "teacher" / "done.json").exists()


def refused(server: EndpointServer, folder: Path, code: int = 2, **more: Any) -> str:
    """Distil, and return the one line that refuses it before any file or request."""
    result = distill(folder / "run", server.url, **more)
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1), result.stderr
    assert not (folder / "run").exists()
    assert not server.asked
    return result.stderr


BIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}


def test_a_model_too_large_for_the_machine_is_refused_before_any_request(
    server: EndpointServer, tmp_path: Path
) -> None:
    """The need of 16 bytes per parameter follows from the configuration alone: the folder has no weights."""
    big = tmp_path / "big"
    big.mkdir()
    (big / "config.json").write_text(json.dumps(BIG))
    assert refused(server, tmp_path, 1, model=str(big)).startswith(
        f"tirjudge train: {big} has 70.94 billion parameters: training takes at least 1,057.1 GiB, and "
    )


def test_a_disk_too_small_for_the_run_is_refused_before_any_request(
    server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate is computed by hand.

    A checkpoint has 12 bytes per parameter: SFT keeps two, the single step of RL keeps one, and one more is
    written before an old one is deleted. Both stages and the selection leave a model of 4 bytes per
    parameter, and the validated step of RL a snapshot of 2; four rollouts are negligible.
    """
    monkeypatch.setattr(preflight, "available_disk", lambda folder: 50_000_000)
    said = refused(server, tmp_path, 1)
    assert "0.00 billion parameters: the run writes at least 54.3 MiB of checkpoints and models" in said


def test_a_missing_extra_is_named_before_any_request(
    server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    said = refused(server, tmp_path)
    assert "tirjudge[train]" in said
    assert "trl" in said


def test_a_student_whose_template_opens_the_thinking_is_refused_before_any_request(
    server: EndpointServer, tmp_path: Path
) -> None:
    """A teacher's dialogues have no reasoning, so that the student would learn turns without `</think>`."""
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    template = model / "chat_template.jinja"
    template.write_text(template.read_text() + "{% if add_generation_prompt %}<think>\n{% endif %}")
    said = refused(server, tmp_path, model=str(model), **{"model.enable_thinking": "true"})
    assert f"the chat template of {model} opens <think>, and the dialogues of a teacher" in said


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--teacher-base-url", "https://me:hunter2@host"), "teacher.base_url"),
        (("--set", "teacher.api_key=hunter2"), "'teacher.api_key'"),
    ],
)
def test_a_password_of_a_refused_option_is_not_repeated(
    server: EndpointServer, tmp_path: Path, words: tuple[str, ...], key: str
) -> None:
    teacher = ("--distill", "--teacher", "m", "--teacher-base-url", server.url)
    result = train("--output", str(tmp_path / "run"), *teacher, *words)
    assert result.exit_code == 2, result.stderr
    assert result.stderr.startswith("tirjudge train: ")
    assert key in result.stderr
    assert result.stderr.count("\n") == 1
    assert "hunter2" not in result.stderr
    assert not (tmp_path / "run").exists()
    assert not server.asked
