"""The Inspect scorer and tools: real tasks with Inspect's mock model, a real judge endpoint and sandbox."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import counting

inspect_ai = pytest.importorskip("inspect_ai", reason="needs the extra inspect, see .ci/frameworks")

from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.log import EvalLog, read_eval_log  # noqa: E402
from inspect_ai.model import ChatMessageUser, ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.solver import generate, use_tools  # noqa: E402

from tirjudge.adapters.inspect_ai import close_judges, tirjudge_compare, tirjudge_python, tirjudge_scorer  # noqa: E402

FAST = {"backend_options": {"preload": []}, "retries": 0}


@pytest.fixture(autouse=True)
def judges() -> Iterator[None]:
    yield
    close_judges()


def evaluated(folder: Path, samples: list[Sample], outputs: list[Any], **task: Any) -> EvalLog:
    """Return the log of a task whose model gives these outputs in turn."""
    texts = [
        ModelOutput.from_content("mockllm/model", one) if isinstance(one, str) else one for one in outputs
    ]
    for one in texts:
        # Without a usage the mock model counts tokens, with a vocabulary that it downloads.
        one.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = get_model("mockllm/model", memoize=False, custom_outputs=texts)
    made = inspect_ai.Task(dataset=samples, solver=task.pop("solver", generate()), **task)
    # One sample after the other: the outputs are given in order.
    options = {"display": "none", "log_dir": str(folder), "max_samples": 1, "fail_on_error": False}
    (log,) = inspect_ai.eval(made, model=model, **options)
    return log


def samples_by_id(log: EvalLog) -> dict[Any, Any]:
    assert log.samples is not None
    return {sample.id: sample for sample in log.samples}


def score_of(sample: Any) -> Any:
    (found,) = sample.scores.values()
    return found


def test_completions_are_compared_with_the_target(tmp_path: Path, server: EndpointServer) -> None:
    server.script = counting  # the judge's program measures the lengths
    samples = [
        Sample(id="longer", input="Q", target="short"),
        Sample(id="shorter", input=[ChatMessageUser(content="Q")], target="a long one"),
        Sample(id="none", input="Q"),
    ]
    scorer = tirjudge_scorer("m", server.url, against="target", prompts="tir", **FAST)
    log = evaluated(tmp_path, samples, ["a long answer", "tiny", "x"], scorer=scorer)
    assert log.status == "success"
    found = samples_by_id(log)
    longer, shorter, none = (score_of(found[name]) for name in ("longer", "shorter", "none"))
    assert (longer.value, longer.answer, shorter.value) == (1.0, "a long answer", 0.0)
    assert [view["order"] for view in longer.metadata["views"]] == [[0, 1], [1, 0]]
    outputs = [one["output"].strip() for one in longer.metadata["programs"]]
    assert outputs == ["longer: A", "longer: B"]
    assert "preference" in longer.explanation
    assert math.isnan(none.value)
    assert none.reason == "the sample has no target"
    assert log.results is not None
    (total,) = log.results.scores
    assert (total.scored_samples, total.unscored_samples, total.metrics["mean"].value) == (2, 1, 0.5)


def test_a_completion_is_scored_alone_and_a_failure_is_no_score(
    tmp_path: Path, server: EndpointServer
) -> None:
    def script(body: dict[str, Any]) -> Any:
        text = str(body["messages"])
        if "down" in text:
            return {"error": "gone"}
        return chat("I cannot say." if "mute" in text else "<score>7.5</score>")

    server.script = script
    samples = [Sample(id=name, input=name) for name in ("good", "mute", "down")]
    scorer = tirjudge_scorer("m", server.url, tools=False, **FAST)
    log = evaluated(tmp_path, samples, ["a", "b", "c"], scorer=scorer)
    found = samples_by_id(log)
    assert score_of(found["good"]).value == 7.5
    mute, down = score_of(found["mute"]), found["down"]
    assert math.isnan(mute.value)
    assert mute.reason.startswith("malformed: ")
    assert down.error is not None
    assert not down.scores


def test_a_solver_runs_programs_and_asks_a_judge(tmp_path: Path, server: EndpointServer) -> None:
    server.script = lambda body: chat("Both run. <preference>B</preference>")

    def call(name: str, **arguments: str) -> ModelOutput:
        return ModelOutput.for_tool_call("mockllm/model", name, arguments)

    outputs = [
        call("tirjudge_python", code="print(6 * 7)"),
        call("tirjudge_python", code="import socket\nsocket.create_connection(('127.0.0.1', 80))"),
        call("tirjudge_compare", question="Q", first="a", second="b"),
        "done",
    ]
    judge = tirjudge_compare("m", server.url, order="given", **FAST)
    solver = [use_tools(tirjudge_python(timeout=5), judge), generate()]
    log = evaluated(tmp_path, [Sample(input="Q")], outputs, solver=solver)
    assert log.status == "success", log.error
    (sample,) = samples_by_id(log).values()
    results = [message.text for message in sample.messages if message.role == "tool"]
    assert results[0].strip() == "42"
    assert "Error" in results[1]
    undecided = "the second answer is better, undecided: no program decided it"
    assert results[2].startswith(f"{undecided}\n\nBoth run.")


def test_the_task_of_the_documentation(tmp_path: Path, server: EndpointServer) -> None:
    server.script = lambda body: chat("<preference>A</preference>")
    (code,) = [block.code for block in blocks() if "from inspect_ai import Task" in block.code]
    names: dict[str, Any] = {}
    exec(compile(code.replace("http://localhost:8000/v1", server.url), "embedding.md", "exec"), names)
    found = names["summaries"]()
    log = evaluated(tmp_path, list(found.dataset), ["A tragedy."], solver=found.solver, scorer=found.scorer)
    assert log.status == "success", log.error
    (sample,) = samples_by_id(log).values()
    assert score_of(sample).value == 0.5  # A in both orders


def test_a_stored_log_is_scored_again(tmp_path: Path, server: EndpointServer) -> None:
    server.script = counting
    samples = [Sample(id="a", input="Q", target="short", metadata={"draft": "a much longer draft"})]
    stored = evaluated(tmp_path, samples, ["a longer answer"])
    command = Path(sys.executable).with_name("inspect")
    words = ["--scorer", "tirjudge/tirjudge_scorer", "--output-file", str(tmp_path / "again.eval")]
    words += [
        "-S",
        "backend_options={preload: []}",
        "-S",
        "prompts=tir",
        "-S",
        "model=m",
        "-S",
        f"base_url={server.url}",
        "-S",
        "against=metadata.draft",
    ]
    done = subprocess.run(
        [command, "score", stored.location, *words, "--action", "append", "--overwrite", "--display", "none"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    score = score_of(samples_by_id(read_eval_log(str(tmp_path / "again.eval")))["a"])
    assert (score.value, score.answer) == (0.0, "a longer answer")
