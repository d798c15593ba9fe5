"""Kinds of misuse, and the page that says what each gets: `python -m tests.tirjudge.cli.misuse`."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse
from typer.testing import CliRunner

from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tests.tirjudge.judged_files import judge_to
from tirjudge import Judge
from tirjudge.cli import app
from tirjudge.group_rewards import GroupOptions

ROOT = Path(__file__).parents[3]
PAGE = Path(__file__).with_suffix(".md")
_PAIR = {"prompt": "Which is longer?", "responses": ["a", "bb"]}
_SERVED = "--no-tools --retries 0 --base-url URL --model"
"""An endpoint with the models `silent`, `locked`, which needs a key, and `short`, whose context is short."""
HEAD = """# Kinds of misuse and their messages

Every kind of misuse below gets one line that says what is wrong and what to do, and an exit code other
than 0; in Python, an exception with that line. A test runs each of them and compares the line with this page,
which `python -m tests.tirjudge.cli.misuse` writes. In the commands, `URL` is the address of an endpoint;
rows.jsonl has a `prompt` and two `responses`, and out.jsonl is a result file.

| misuse | command | exit | last line |
|---|---|---|---|
"""

COMMANDS = {
    "a file that does not exist": "judge missing.jsonl",
    "a file without rows": "judge empty.jsonl",
    "columns with other names": "judge other-columns.jsonl",
    "labels counted from 1": "judge one-based.jsonl",
    "a file that is not JSON": f"judge text.txt --output o1 {_SERVED} m",
    "a misspelled option": "judge rows.jsonl --modle m",
    "two kinds at once": "judge rows.jsonl --pairwise --listwise",
    "an unknown format": f"judge rows.jsonl --format nope {_SERVED} m",
    "a format's option without a format": f"judge rows.jsonl --option style=instruct {_SERVED} m",
    "labels without a meaning": "judge rows.jsonl --labels 1A",
    "a column without a place": "judge rows.jsonl --column prompt=",
    "the input as the output": "judge rows.jsonl --output rows.jsonl",
    "somebody else's file as the output": f"judge rows.jsonl --output notes.txt {_SERVED} m",
    "a config file that does not exist": "judge rows.jsonl --config missing.toml",
    "an unknown key in a config file": "judge rows.jsonl --config judge.toml",
    "a number out of range": "judge rows.jsonl --concurrency 0",
    "a cost limit without a price": f"judge rows.jsonl --output o2 --max-cost 1 {_SERVED} m",
    "an endpoint without a model": "judge rows.jsonl --output o3 --base-url URL",
    "an address that is no URL": "judge rows.jsonl --output o4 --model m --base-url localhost:8000",
    "a password in the address": "judge rows.jsonl --output o5 --model m --base-url http://u:p@localhost/v1",
    "an endpoint that is not there": "judge rows.jsonl --no-tools --retries 0 --model m --base-url http://127.0.0.1:9",
    "a pattern that matches no file": f"judge none/*.jsonl {_SERVED} m",
    "a missing Ray cluster": "judge rows.jsonl --runner ray --address 127.0.0.1:9 --model m --base-url URL",
    "an address without a runner": f"judge rows.jsonl --address 127.0.0.1:9 {_SERVED} m",
    "a cost limit on several machines": f"judge rows.jsonl --runner ray --max-cost 1 {_SERVED} m",
    "two kinds of endpoints": f"judge rows.jsonl --runner ray --endpoint http://a:8000/v1 {_SERVED} m",
    "a wrong key": f"judge rows.jsonl --output o7 {_SERVED} locked",
    "a model that gives no verdict": f"judge rows.jsonl --output o8 {_SERVED} silent",
    "an empty list of criteria": f"judge no-criteria.jsonl {_SERVED} m",
    "criteria without a weight": f"judge no-weight.jsonl {_SERVED} m",
    "an unknown polarity": f"judge polarity.jsonl {_SERVED} m",
    "a criterion that occurs twice": f"judge twice.jsonl {_SERVED} m",
    "a reference that is longer than the context": f"judge reference.jsonl {_SERVED} short",
    "a request field of the judge's own": f"judge rows.jsonl --output o9 --request-field seed=1 {_SERVED} m",
    "token ids without a tokenizer": f"judge rows.jsonl --output o10 --tier completions {_SERVED} m",
    "a model folder that does not exist": "judge rows.jsonl --output o11 --model ./no-model",
    "an unknown method": "bon rows.jsonl --method best",
    "a method without a judge": "bon rows.jsonl --no-judge --method pairwise",
    "best-of-N of rows with other columns": "bon other-columns.jsonl",
    "best-of-N to standard output": "bon rows.jsonl --output -",
    "nothing to evaluate": "eval",
    "scoring by eval": "eval --replay out.jsonl --protocol tir",
    "an unknown benchmark": "eval nope",
    "an unknown protocol": "score out.jsonl --protocol nope",
    "rows to score": "score rows.jsonl",
    "figures on an unknown benchmark": "score --published nope",
    "calibration without a run": "score --calibrate people.jsonl",
    "labels of people that are all the same": "score out.jsonl --calibrate constant.jsonl",
    "people who never agree": "score out.jsonl --calibrate opposed.jsonl",
    "labels on another scale": "score out.jsonl --calibrate scale.jsonl",
    "labels of other rows": "score out.jsonl --calibrate other-people.jsonl",
    "a margin without scores": "score two.jsonl --calibrate people.jsonl --confidence margin",
    "a risk above 1": "score out.jsonl --calibrate people.jsonl --target-risk 2",
    "a threshold on a single vote": f"judge rows.jsonl --output o12 --abstain-below 0.8 {_SERVED} m",
    "a confidence without a threshold": "judge rows.jsonl --confidence margin",
    "an attack on nothing": "attack",
    "an unknown attack": "attack rows.jsonl --attack nope",
    "an attack on single responses": f"attack single.jsonl {_SERVED} m",
    "somebody else's file as the output of attacks": f"attack rows.jsonl --output notes.txt {_SERVED} m",
    "attacks to standard output": "attack rows.jsonl --output -",
    "a port that does not exist": "serve --port 99999",
    "an open address without a token": "serve --host 0.0.0.0",
    "a token file that does not exist": "serve --token-file missing",
    "no time for an agent's code": "mcp --code-timeout 0",
    "MCP at an open address without a token": "mcp --transport http --host 0.0.0.0",
    "an unknown recipe": "train --recipe nope",
    "an unknown key of a recipe": "train --recipe smol --set rl.nope=1",
    "an unknown corpus": "data build nope",
    "rows to inspect that do not exist": "data inspect missing.jsonl",
    "results that do not exist": "show missing.jsonl",
    "rows to show": "show rows.jsonl",
    "a row that is not there": "show out.jsonl nobody",
    "rows to reproduce": "reproduce rows.jsonl",
    "a truncated result file": "reproduce torn.jsonl",
    "a time limit below zero": "reproduce out.jsonl --timeout -1",
    "removing a model that is not there": "models remove nope",
    "fetching a file that does not exist": "models fetch missing.gguf",
    "an unknown format to export": "export pdf out.jsonl",
    "a program that does not exist": "sandbox run missing.py",
    "a misspelled command": "juge rows.jsonl",
}
"""The kind of misuse and the words after `tirjudge`."""

CALLS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "a misspelled option in Python": ('Judge(modle="m")', lambda url: Judge(modle="m")),
    "a value out of range in Python": ("Judge(concurrency=0)", lambda url: Judge(concurrency=0)),
    "no prompt": ('judge.compare(None, "a", "b")', lambda url: _judge(url).compare(None, "a", "b")),  # type: ignore[arg-type]
    "a text in place of a list": ('judge.rank("p", "abc")', lambda url: _judge(url).rank("p", "abc")),
    "a response that is no text": ('judge.score("p", 7)', lambda url: _judge(url).score("p", 7)),  # type: ignore[arg-type]
    "rows that are none": ('judge.batch("rows")', lambda url: _judge(url).batch("rows")),  # type: ignore[arg-type]
    "a batch in which no row can be judged": (
        'judge.batch([{"prompt": "p"}])',
        lambda url: _judge(url).batch([{"prompt": "p"}]),
    ),
    "a threshold on a single vote, in Python": (
        "Judge(abstain_below=0.8)",
        lambda url: Judge(abstain_below=0.8),
    ),
    "a group of one": ('judge.reward_group("p", ["a"])', lambda url: _judge(url).reward_group("p", ["a"])),
    "an unknown method for a group": (
        'judge.reward_group("p", ["a", "b"], GroupOptions(method="best"))',
        lambda url: _judge(url).reward_group("p", ["a", "b"], GroupOptions(method="best")),
    ),
    "a budget that is too small for a group": (
        'judge.reward_group("p", ["a", "b"], GroupOptions(both_orders=True, budget=1))',
        lambda url: _judge(url).reward_group("p", ["a", "b"], GroupOptions(both_orders=True, budget=1)),
    ),
    "an endpoint that is not there, in Python": (
        'Judge("m", "http://127.0.0.1:9", retries=0).score("p", "a")',
        lambda url: Judge("m", "http://127.0.0.1:9", retries=0, tools=False).score("p", "a"),
    ),
}


def _judge(url: str) -> Judge:
    return Judge("m", url, tools=False, retries=0)


@dataclass
class Workplace:
    """A folder with files to misuse, and an endpoint."""

    folder: Path
    server: EndpointServer

    def outcome(self, kind: str) -> tuple[str, str, str]:
        """Return the command or the call, the exit code or the error's name, and the last line.

        Raises AssertionError for a traceback.
        """
        if kind in CALLS:
            code, call = CALLS[kind]
            try:
                call(self.server.url)
            except Exception as error:
                return code, type(error).__name__, self._line(str(error))
            return code, "none", ""
        words = COMMANDS[kind]
        given = [self.server.url if word == "URL" else word for word in words.split()]
        keys = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_KEY", "TIRJUDGE_API_KEY"))
        cache = str(self.folder / "cache")
        with chdir(self.folder):
            run = CliRunner().invoke(app, given, env={**keys, "XDG_CACHE_HOME": cache, "HF_HUB_OFFLINE": "1"})
        if run.exception is not None and not isinstance(run.exception, SystemExit):
            raise AssertionError(f"{words}: {run.exception!r}") from run.exception
        assert "Traceback" not in run.output, words
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        return f"tirjudge {words}", str(run.exit_code), self._line(lines[-1] if lines else "")

    def _line(self, text: str) -> str:
        """Return a line without what differs between machines and runs."""
        for place, name in [
            (f"{self.server.url}/v1", "URL/v1"),
            (self.server.url, "URL"),
            (f"{self.folder}/", ""),
            (f"{ROOT}/", ""),
        ]:
            text = text.replace(place, name)
        return re.sub(r"\b\d{2}:\d{2}:\d{2} ", "", " ".join(text.split()))


@contextmanager
def workplace(folder: Path) -> Iterator[Workplace]:
    with serving() as server:
        server.script = _answer
        with chdir(folder):
            _write_files()
        yield Workplace(folder, server)


def _answer(body: dict[str, Any]) -> Any:
    if body["model"] == "locked":
        return JSONResponse({"error": {"message": "Incorrect API key provided"}}, 401)
    if body["model"] == "short":
        return JSONResponse({"error": {"message": "maximum context length is 8192 tokens"}}, 400)
    return chat("I cannot say.")


def _write_files() -> None:
    rows = json.dumps({**_PAIR, "id": "x"}) + "\n"
    texts = {
        "rows.jsonl": rows,
        "empty.jsonl": "",
        "other-columns.jsonl": json.dumps({"question": "q", "answers": ["a", "b"]}) + "\n",
        "one-based.jsonl": "".join(json.dumps({**_PAIR, "label": label}) + "\n" for label in (1, 2)),
        "text.txt": "These are notes.\n",
        "notes.txt": "These are notes.\n",
        "judge.toml": "modle = 'm'\n",
        "single.jsonl": json.dumps({"prompt": "p", "response": "a"}) + "\n",
        "people.jsonl": _people("xy", "AB", "AB"),
        "other-people.jsonl": _people("yz", "AB", "AB"),
        "opposed.jsonl": _people("xy", "AB", "BA"),
        "constant.jsonl": "".join(json.dumps({"id": id, "label": "A"}) + "\n" for id in "xy"),
        "scale.jsonl": "".join(json.dumps({"id": id, "label": n}) + "\n" for id, n in (("x", 7), ("y", 9))),
    }
    criteria: dict[str, dict[str, Any]] = {
        "no-criteria.jsonl": {"criteria": []},
        "no-weight.jsonl": {"criteria": [{"text": "It is kind.", "weight": 0}]},
        "polarity.jsonl": {"criteria": [{"text": "It is kind.", "polarity": "good"}]},
        "twice.jsonl": {"criteria": ["It is kind.", "It is kind."]},
        "reference.jsonl": {"reference": "b" * 100_000},
    }
    texts |= {name: json.dumps({**_PAIR, **one}) + "\n" for name, one in criteria.items()}
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    out = judge_to(Path("out.jsonl"), [{**_PAIR, "id": "x"}], lambda _: "<preference>A</preference>")
    both = [{**_PAIR, "id": "x"}, {**_PAIR, "id": "y"}]
    judge_to(Path("two.jsonl"), both, lambda _: "<preference>A</preference>")
    Path("torn.jsonl").write_bytes(out.read_bytes()[:-9])


def _people(ids: str, first: str, second: str) -> str:
    """Return labels of two annotators, one letter for each row."""
    rows = zip(ids, first, second, strict=True)
    return "".join(json.dumps({"id": id, "annotator1": a, "annotator2": b}) + "\n" for id, a, b in rows)


def table_row(kind: str, outcome: tuple[str, str, str]) -> str:
    command, code, line = outcome
    shown = line.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
    return f"| {kind} | `{command}` | {code} | {shown} |\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, workplace(Path(name)) as place:
        rows = [table_row(kind, place.outcome(kind)) for kind in (*COMMANDS, *CALLS)]
    PAGE.write_text(HEAD + "".join(rows), encoding="utf-8")
