"""Clients of SandboxFusion get the same answers from this server as from SandboxFusion's own."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests
import sandbox_fusion as client

from tests.sandbox.serving import Served, serving
from tirjudge_sandbox import Limits, Program
from tirjudge_sandbox.http.fusion_messages import to_request


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


def asked(code: str, **fields: object) -> client.RunCodeRequest:
    return client.RunCodeRequest(code=code, language="python", **fields)


def test_the_official_client_reads_output_and_exit_code(served: Served) -> None:
    answer = client.run_code(asked("import sys; print(input()); sys.exit(3)", stdin="x"), endpoint=served.url)
    assert answer.status is client.RunStatus.Failed
    assert answer.message == ""
    assert answer.compile_result is None
    result = answer.run_result
    assert (result.status, result.return_code, result.stdout, result.stderr) == ("Finished", 3, "x\n", "")
    assert result.execution_time > 0


def test_the_official_client_sees_a_time_limit(served: Served) -> None:
    source = "print('so far')\nimport time; time.sleep(60)"
    answer = client.run_code(asked(source, run_timeout=1), endpoint=served.url)
    result = answer.run_result
    assert (answer.status, result.status) == ("Failed", "TimeLimitExceeded")
    assert (result.return_code, result.stdout) == (None, "so far\n")
    assert client.summary_run_code_result(answer, client.SummaryMapping(RunTimeout="late")) == "late"


def test_what_a_crashed_program_printed_is_in_the_answer(served: Served) -> None:
    answer = served.run("print('so far', end='')\nimport os; os.abort()")
    result = answer["run_result"]
    assert (answer["status"], result["return_code"], result["stdout"]) == ("Failed", -6, "so far")


def test_a_program_for_a_server_of_others_prints_at_once() -> None:
    """The request sent to a SandboxFusion server, run as its `python` runs it and killed."""
    source = (
        "import sys, time\nprint('é so far', end='')\nprint('half', end='', file=sys.stderr)\ntime.sleep(60)"
    )
    code = to_request(Program(source), Limits())["code"]
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr.read(4) == b"half"
        process.kill()
        assert process.stdout.read().decode() == "é so far"


def test_the_official_client_sends_and_fetches_files(served: Served) -> None:
    files = {"in/a.bin": base64.b64encode(b"\x00\xff").decode(), "left-out": None}
    source = "import os; open('out', 'wb').write(open('in/a.bin', 'rb').read()[::-1]); print(os.listdir())"
    request = asked(source, files=files, fetch_files=["out", "none"])
    answer = client.run_code(request, endpoint=served.url)
    assert {path: base64.b64decode(content) for path, content in answer.files.items()} == {"out": b"\xff\x00"}
    assert "left-out" not in answer.run_result.stdout


async def test_the_official_asynchronous_client(served: Served) -> None:
    answer = await client.run_code_async(asked("print(1)"), endpoint=served.url)
    assert (answer.status, answer.run_result.stdout) == ("Success", "1\n")


@pytest.mark.slow
def test_the_memory_limit_of_a_request_applies(served: Served) -> None:
    source = "x = bytearray(300 << 20); print(len(x))"
    assert served.run(source)["status"] == "Success"
    answer = served.run(source, memory_limit_MB=100)
    assert (answer["status"], answer["run_result"]["return_code"]) == ("Failed", 1)
    assert answer["run_result"]["stderr"].splitlines()[-1] == "MemoryError"


def test_too_much_output_is_a_failure_that_says_so(served: Served) -> None:
    answer = served.run("import sys; sys.stdout.write('x' * ((1 << 20) + 7))")
    assert (answer["status"], answer["run_result"]["return_code"]) == ("Failed", -9)
    assert answer["message"] == "stopped at the limit of 1048576 bytes of output; 7 were cut"
    assert len(answer["run_result"]["stdout"]) == 1 << 20


@pytest.mark.parametrize("language", ["cpp", "nodejs", "python_gpu"])
def test_other_languages_get_an_error_and_not_a_failed_program(served: Served, language: str) -> None:
    request = client.RunCodeRequest(code="x", language=language)
    with pytest.raises(Exception, match=f"this server runs python, not {language}"):
        client.run_code(request, endpoint=served.url, max_attempts=1)


def test_a_caller_like_verls_tool(served: Served) -> None:
    """Send what verl 0.5's `call_sandbox_api` sends, and check what its `check_correctness` reads."""
    payload = json.dumps(
        {
            "compile_timeout": 10, "run_timeout": 10, "code": "print(int(input()) + 1)", "stdin": "41",
            "memory_limit_MB": 1024, "language": "python", "files": {}, "fetch_files": [],
        }
    )  # fmt: skip
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    response = requests.post(f"{served.url}/run_code", headers=headers, data=payload, timeout=30)
    response.raise_for_status()
    answer = response.json()
    assert answer["status"] == "Success"
    assert answer.get("compile_result") is None
    result = answer["run_result"]
    assert (result["status"], result["return_code"], result["stdout"].rstrip("\n")) == ("Finished", 0, "42")
    assert isinstance(result["execution_time"], float)
    assert result["stderr"] == ""
