"""Misuse of every command: one line that names the file, row or option, an exit code, and no traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from typer.testing import CliRunner, Result

from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tests.tirjudge.judged_files import judge_to
from tirjudge.cli import app
from tirjudge_environments.checkers.file import Checker, CheckerFile

CHECKER = Checker(name="c", rule="It is.", source="def check(response, prompt):\n    return True\n")
PAIR = {"id": "x", "prompt": "Which is longer?", "responses": ["a", "bb"]}
REFUSED = {
    # rows and files
    "judge missing.jsonl": "missing.jsonl: No such file",
    "judge empty.jsonl": "empty.jsonl has no rows",
    "judge columns.jsonl": "map them with --column prompt=question --column responses=answers",
    "judge one-based.jsonl": "give --labels 1=A,2=B",
    "judge arena.jsonl": "'gpt' (1), 'claude' (1): say what each means with --labels gpt=LETTER,claude=",
    "judge rows.jsonl --column label=lable": "no row has the column 'lable' (named as label); the columns",
    "judge arena.jsonl --column label=winer": "did you mean 'winner'?",
    "judge mistyped.jsonl": "map them with --column responses=respones",
    "judge rows.jsonl --labels =A": "write VALUE=LETTER",
    "judge rows.jsonl --order reversed": "--order",
    "judge rows.jsonl --max-tokens none": "--max-tokens",
    "judge rows.jsonl --samples 0": "samples: ",
    "judge rows.jsonl --temperature -1": "temperature: ",
    "judge rows.jsonl --format jl-pav": "no judge format 'jl-pav'; there are checks-listwise",
    "judge rows.jsonl --order both --format j1-pas --model smol --option order=sideways": "order: ",
    "judge folder": "judge: folder: this folder has no file of rows; name a file, or a quoted pattern",
    "judge text.jsonl --output o1 SERVED": "text.jsonl:1: not JSON",
    "judge rows.xlsx": "rows.xlsx: an Excel workbook or another zip file: save the sheet as CSV UTF-8",
    "judge binary": "no row can be read: the file must be JSON lines, JSON, CSV or Parquet",
    "judge latin.csv": "latin.csv:2: neither UTF-8 nor cp1252: name its encoding with --encoding",
    "judge latin.csv --encoding latin-99": "--encoding latin-99: no such encoding",
    "judge latin.csv --encoding base64": "--encoding base64: no such encoding",
    "judge latin.csv --encoding ascii": "latin.csv:2: not ascii",
    "judge rows.jsonl --model ~/no-model": "no-model",
    "judge rows.jsonl --model missing.gguf": "missing.gguf: there is no such file",
    "judge rows.jsonl --note-of judge": "--note-of is about a model behind an endpoint: give --base-url",
    "judge rows.jsonl --note-of . SERVED": "--note-of .: there is no tirjudge.json of a trained judge",
    "judge rows.jsonl --base-url file:///v1 --model m": "the base URL must be http(s)://",
    "judge rows.jsonl --config broken.toml": "broken.toml is not TOML: ",
    "judge rows.jsonl --config rows.jsonl": "rows.jsonl is not TOML: ",
    "serve --config hidden.toml": "hidden.toml: tirjudge serve has no option abstain_below",
    "mcp --config hidden.toml": "hidden.toml: tirjudge mcp has no option abstain_below",
    "serve --model gpt-4o-mini": "did you mean --base-url?",
    "attack rows.jsonl --model gpt-4o-mini": "did you mean --base-url?",
    "score out.jsonl --column label=x": "--column needs either prediction=COLUMN",
    "compare out.jsonl": "give two files, or one and --column prediction=COLUMN",
    "compare out.jsonl missing.jsonl": "missing.jsonl: No such file",
    "sandbox run": "FILE",
    "judge broken.json SERVED": "broken.json: not JSON",
    "judge -": "give --output",
    "judge rows.jsonl --labels 1A": "--labels '1A': write VALUE=LETTER",
    "judge": "give a FILE of rows, or --answers NAME=FILE for each of several models",
    "judge one.jsonl --answers x=one.jsonl": "give a FILE of rows, or --answers",
    "judge --answers x=one.jsonl": "once for each of at least two models",
    "judge --answers one.jsonl": "--answers one.jsonl: give NAME=FILE",
    "judge --answers x=one.jsonl --answers x=other.jsonl": "with another NAME for each model",
    "judge --answers x=one.jsonl --answers y=other.jsonl": "no two rows have the same prompt",
    "judge --answers x=one.jsonl --answers y=odd.jsonl": "odd.jsonl: no column is the response: name it with",
    "judge rows.jsonl --column responses=nope_a,nope_b": "no row has the column 'nope_a' (named",
    "judge rows.jsonl --column promt=x": "'promt=x': write PART=COLUMN, where PART is one of id",
    "judge rows.jsonl --output rows.jsonl": "rows.jsonl is the input: choose another --output",
    "judge rows.jsonl --output ./rows.jsonl --overwrite SERVED": "choose another --output",
    "judge rows.jsonl --output notes.txt SERVED": "notes.txt exists and was not written by tirjudge judge",
    "judge rows.jsonl --output folder SERVED": "folder is a folder: choose another --output",
    "judge rows.jsonl --output mine.jsonl SERVED": "choose another --output",
    "criteria rows.jsonl --output notes.txt SERVED": "exists and was not written by tirjudge criteria",
    "judge rows.jsonl --output no/such/folder/out SERVED": "no/such/folder",
    "judge none/*.jsonl SERVED": "none/*.jsonl: no file matches this pattern",
    # options
    "judge rows.jsonl --modle m": "--model",
    "judge rows.jsonl --pairwise --listwise": "--pairwise and --listwise exclude each other",
    "judge rows.jsonl --format j1-pav --pairwise SERVED": "--format and --pairwise exclude each other",
    "judge rows.jsonl --format nope SERVED": "no judge format 'nope'; there are checks-listwise",
    "judge rows.jsonl --option style=instruct SERVED": "options belong to a format: give --format",
    "judge rows.jsonl --format j1-pav --option plan SERVED": "--option 'plan': write KEY=VALUE",
    "judge rows.jsonl --format j1-pav --option size=3 SERVED": "size: no such option",
    "judge rows.jsonl --format j1-pav": "the embedded model knows only TIR-Judge's formats: give --model",
    "judge rows.jsonl --prompts x SERVED": "--prompts x: give a TOML file, or one of the names mini, smol,",
    "judge rows.jsonl --prompts missing.toml SERVED": "--prompts missing.toml: No such file",
    "judge rows.jsonl --prompts broken.toml SERVED": "--prompts broken.toml is not TOML: ",
    "judge rows.jsonl --prompts judge.toml SERVED": "--prompts judge.toml: modle: Extra inputs",
    "judge rows.jsonl --prompts mini --format checks SERVED": "checks-pointwise has its own prompts",
    "judge rows.jsonl --prompts mini --format j1-pav SERVED": "j1-pav has its own prompts: leave it out",
    "judge rows.jsonl --prompts no.toml TOOLS": "texts.pair: there is no such text; the names are pointwise",
    "judge rows.jsonl --prompts one-slot.toml TOOLS": "texts.pairwise needs a slot {prompt}, and one for",
    "judge rows.jsonl --prompts slot-c.toml TOOLS": "a slot {response C} that this view cannot fill",
    "judge rows.jsonl --prompts slot-b.toml TOOLS": "texts.listwise needs a slot",
    "judge rows.jsonl --prompts examples.toml TOOLS": "examples.0.responses: ",
    "judge rows.jsonl --prompts mistyped.toml TOOLS": "--prompts mistyped.toml: sytem: ",
    "judge rows.jsonl --pairwise --prompts pair.toml SERVED": "no texts.pairwise-no-tools",
    "judge rows.jsonl --prompts latin.toml TOOLS": "--prompts latin.toml is not TOML: ",
    "judge rows.jsonl --format checks SERVED": "needs programs",
    "judge rows.jsonl --format checks --exact TOOLS": "use tir",
    "judge rows.jsonl --format checks --no-bindings TOOLS": "use tir",
    "judge rows.jsonl --format checks --criteria-per-call 2 TOOLS": "one criterion at a time",
    "judge rows.jsonl --format j1-pav --criteria-per-call 2 SERVED": "j1-pav gives one answer: leave out",
    "judge rows.jsonl --checkers new.toml SERVED": "none of its 1 checkers is admitted, and 1 are unmeasured",
    "judge rows.jsonl --checkers version.toml SERVED": "version.toml: version",
    "judge rows.jsonl --checkers missing.toml SERVED": "missing.toml cannot be read: No such file",
    "judge rows.jsonl --config missing.toml": "--config missing.toml: there is no such file",
    "judge rows.jsonl --config key.toml": "key.toml: api_key: there is no such option",
    "judge rows.jsonl --config seed.toml": "seed.toml: seed: ",
    "judge rows.jsonl --config several.json": 'several.json: samples: write 2, not "2"',
    "judge rows.jsonl --config tools.json": 'tools.json: tools: write true, not "yes"',
    "judge rows.jsonl --temperature inf": "temperature: ",
    "compile rows.jsonl --rules notes.txt -o rows.jsonl --overwrite": "rows.jsonl is the input: choose",
    "judge rows.jsonl --config broken.json": "broken.json is not JSON",
    "judge rows.jsonl --config judge.toml": "judge.toml: modle: there is no such option; did you mean model?",
    "judge rows.jsonl --concurrency 0": "concurrency: ",
    "judge rows.jsonl --max-cost 1 SERVED": "give --price-in and --price-out",
    "judge rows.jsonl --price-in 1 SERVED": "give --price-in and --price-out",
    "judge rows.jsonl --abstain-below 0.8 SERVED": "give --order both or --samples N to --abstain-below",
    "judge rows.jsonl --abstain-below 1.5 --order both SERVED": "vote-share needs a number above 0",
    "judge rows.jsonl --confidence margin": "--confidence belongs to --abstain-below",
    # models, endpoints and sandboxes
    "judge rows.jsonl --base-url URL": "give --model",
    "judge rows.jsonl --model m --base-url localhost:8000": "the base URL must be http(s)://",
    "judge rows.jsonl --model m --base-url http://u:sk-secret@host/v1": "the base URL must be http(s)://",
    "judge rows.jsonl --request-field x=1": "--request-field is sent to an endpoint: give --base-url",
    "judge rows.jsonl --request-field seed=1 SERVED": "'seed' itself: use --seed",
    "judge rows.jsonl --tier turns": "give --base-url",
    "judge rows.jsonl --tier completions SERVED": "it needs the model's tokenizer",
    "judge rows.jsonl --model ./no-model": "cannot load the model './no-model'",
    "judge rows.jsonl --model gpt-4o-mini": "no hub id that can be reached",
    "judge rows.jsonl --model notes.txt": "notes.txt': a file must be a GGUF file",
    "judge rows.jsonl --generator nosuch": "no generator 'nosuch'; there are openvino, transformers",
    "judge rows.jsonl --generator nosuch SERVED": "leave out either it or --base-url",
    "judge rows.jsonl --generator-option rows": "--generator-option 'rows': write KEY=VALUE",
    "judge rows.jsonl --backend nosuch": "no sandbox 'nosuch'; there are docker, jupyter, local, remote",
    "judge rows.jsonl --backend remote --import-policy": "sandbox 'remote': ",
    "judge rows.jsonl --backend remote --model m --base-url URL": "no sandbox server is named",
    "judge rows.jsonl --backend-option name=red": "sandbox 'local': ",
    "judge rows.jsonl --address 127.0.0.1:9 SERVED": "--address belongs to --runner ray",
    "judge rows.jsonl --model one --model one --base-url URL": "the jury has one twice",
    "judge rows.jsonl --escalate-below 0.9 SERVED": "need a jury: give several --model",
    "judge rows.jsonl --vote-weight m=2 SERVED": "need a jury: give several --model",
    "judge rows.jsonl --vote-weight three=2 SERVED --model two": "--vote-weight three",
    "judge rows.jsonl --vote-weight m=0 SERVED --model two": "greater than 0",
    "judge rows.jsonl --escalate-below 2 SERVED --model two": "at most 1",
    "judge rows.jsonl --escalate-below 0.9 SERVED --model two": "a single vote has no share",
    "judge rows.jsonl --runner ray SERVED --model two": "--runner ray judges with one --model",
    "judge rows.jsonl --runner ray --max-cost 1 SERVED": "leave it out with --runner ray",
    "judge rows.jsonl --runner ray --endpoint http://a/v1 SERVED": "--endpoint and --base-url exclude",
    "judge rows.jsonl --runner ray --address 127.0.0.1:9 --model m --base-url URL": "no Ray cluster answers",
    # checkers
    "compile rows.jsonl": "no row has rules: give the rows criteria",
    "compile rows.jsonl --base-url http://127.0.0.1:9/v1": "give --model",
    "compile rows.jsonl --measure nowhere.toml": "nowhere.toml cannot be read",
    "compile missing.jsonl": "missing.jsonl",
    "compile rows.jsonl --rules empty.jsonl": "the file has no rule",
    "eval judgebench --checkers new.toml": "No such option",
    "eval judgebench --config named.toml": "has no option checkers",
    # evaluation
    "eval": "give a BENCHMARK",
    "eval judgebench --format j1-pav": "the embedded model knows only TIR-Judge's formats: give --model",
    "judge owner/rows --order both --format j1-pas --model m --option order=sideways": "order: ",
    "eval nope": "no benchmark 'nope'; there are codejudgebench",
    "eval judgebench --output -": "--output -: only tirjudge judge",
    "eval judgebench --data claude=x.jsonl SERVED": "the part is gpt",
    "eval ppe-correctness --data x.jsonl SERVED": "write PART=FILE, PART being one of MMLU-Pro, MATH",
    "eval judgebench --part gpt-4 SERVED": "judgebench has no part 'gpt-4'; there are gpt, claude",
    "eval followbench-eval SERVED": "give --data test=FILE",
    "score rows.jsonl": "tirjudge judge writes; --column prediction=COLUMN --column label=COLUMN reads any",
    "score empty.jsonl": "is empty",
    "score out.jsonl --format nope": "no format of stored outputs 'nope'; there are alpaca_eval,",
    "score out.jsonl --protocol nope": "no protocol 'nope'; there are arena-hard, both-orders,",
    "score --published nope": "no published figures on 'nope'; there are figures on any,",
    "score out.jsonl --as csv --json": "--as and --json exclude each other",
    "score out.jsonl --as csv --calibrate people.jsonl": "--as is for scores",
    "score out.jsonl --as csv --published judgebench": "--as is for scores",
    "score --calibrate people.jsonl": "give a file of stored verdicts",
    "score out.jsonl --target-risk 0.1": "belong to --calibrate LABELS",
    "score out.jsonl --calibrate people.jsonl --protocol tir": "leave out --protocol",
    "score out.jsonl --calibrate people.jsonl --target-risk 2": "--target-risk 2: a share",
    "score out.jsonl --calibrate people.jsonl --target-risk 0.1": "too few to choose a threshold",
    "score out.jsonl --calibrate people.jsonl --confidence margin": "the judge gives no scores",
    # best of N and attacks
    "bon rows.jsonl --method best": "no method 'best'; there are pointwise,",
    "bon rows.jsonl --no-judge --method pairwise": "--no-judge and a method exclude each other",
    "bon columns.jsonl": "map them with --column prompt=question --column responses=answers",
    "bon rows.jsonl --output -": "--output -: only tirjudge judge",
    "bon rows.jsonl --output ./rows.jsonl --no-judge": "is the input",
    "bon -": "standard input has no name",
    "attack": "give a file of rows",
    "attack rows.jsonl --attack nope": "no attack 'nope'; there are the families control,",
    "attack rows.jsonl --output notes.txt SERVED": "notes.txt exists and was not written by tirjudge judge",
    "attack rows.jsonl --output -": "--output -: only tirjudge judge",
    # servers
    "serve --port 99999": "--port",
    "serve --host 0.0.0.0": "needs a token: set TIRJUDGE_SERVE_TOKEN or --token-file",
    "serve --token-file missing": "--token-file missing: No such file",
    "serve --no-verdict-reward nan": "no_verdict_reward",
    "mcp --code-timeout 0": "--code-timeout",
    "mcp --code-timeout 1e30": "--code-timeout",
    "mcp --transport http --host 0.0.0.0": "needs a token: set TIRJUDGE_MCP_TOKEN or --token-file",
    "mcp --transport smoke": "smoke",
    "mcp --backend nosuch": "no sandbox 'nosuch'",
    # data, results and models
    "data build nope": "no recipe 'nope'",
    "show missing.jsonl": "missing.jsonl: No such file",
    "show rows.jsonl": "rows.jsonl:1: not a row that tirjudge judge writes",
    "show notes.txt": "notes.txt:1: not JSON",
    "show deep.jsonl": "deep.jsonl:1: not JSON",
    "show out.jsonl xx": "has no row 'xx' among its 2; the closest ids are x",
    "reproduce missing.jsonl": "missing.jsonl: No such file",
    "reproduce rows.jsonl": "rows.jsonl:1: not a row that tirjudge judge writes",
    "reproduce torn.jsonl": "torn.jsonl ends in the middle of a row",
    "reproduce out.jsonl --timeout -1": "--timeout must be positive",
    "report empty.jsonl -o page.html": "empty.jsonl",
    "report rows.jsonl -o page.html": "rows.jsonl",
    "report out.jsonl out.jsonl -o page.html": "given twice",
    "report out.jsonl -o out.jsonl": "choose a file that is not one of the runs",
    "report out.jsonl --price-in 1 -o page.html": "belong together",
    "report . -o page.html": "no run folder of tirjudge train",
    "models remove nope": "nope is not in the cache",
    "models fetch missing.gguf": "missing.gguf: there is no such file",
    "export pdf out.jsonl": "No such command 'pdf'",
    "sandbox run missing.py": "missing.py: No such file",
    "sandbox run notes.txt --timeout inf": "wall_seconds must be positive and finite",
    "sandbox dokter": "Did you mean 'doctor'?",
    "juge rows.jsonl": "Did you mean 'judge'?",
}
"""A command whose exit code is 2, and what the last line names."""
FAILED = {
    "judge rows.jsonl --output o2 --no-tools --retries 0 --model m --base-url http://127.0.0.1:9": "1:9/v1",
    "judge rows.jsonl --output o3 SERVED --model locked": "set the key in TIRJUDGE_API_KEY or OPENAI_API_KEY",
    "judge rows.jsonl --output o4 SERVED": "malformed (no <preference>): the answers lack the form",
    "judge reference.jsonl --output o5 SERVED --model short": "100000 characters, which --truncate shortens",
    "attack single.jsonl --output o6 SERVED": "single.jsonl:1: an attack needs two responses or more",
}
"""A command that judges no row, whose exit code is 1, and what a line names."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("misuse")
    texts = {
        "rows.jsonl": json.dumps(PAIR),
        "empty.jsonl": "",
        "columns.jsonl": json.dumps({"question": "q", "answers": ["a", "b"]}),
        "one-based.jsonl": "\n".join(json.dumps({**PAIR, "id": n, "label": n}) for n in (1, 2)),
        "broken.json": "[1",
        "text.jsonl": "These are notes.",
        "notes.txt": "These are notes.",
        "deep.jsonl": "[" * 100_000,
        "judge.toml": "modle = 'm'",
        "single.jsonl": json.dumps({"prompt": "p", "response": "a"}),
        "reference.jsonl": json.dumps({**PAIR, "reference": "b" * 100_000}),
        "arena.jsonl": "\n".join(
            json.dumps({**PAIR, "id": n, "label": n, "winner": "A"}) for n in ("gpt", "claude")
        ),
        "mistyped.jsonl": json.dumps({"prompt": "p", "respones": ["a", "bb"]}),
        "one.jsonl": json.dumps({"id": 1, "prompt": "p", "response": "x"}),
        "other.jsonl": json.dumps({"id": 1, "prompt": "q", "response": "x"}),
        "odd.jsonl": json.dumps({"id": 1, "prompt": "p", "text_of_it": "x"}),
        "broken.toml": "model = m",
        "hidden.toml": "abstain_below = 0.5",
        "key.toml": "api_key = 'sk-secret'",
        "seed.toml": "seed = -1",
        "several.json": '{"samples": "2"}',
        "tools.json": '{"tools": "yes"}',
        "no.toml": "texts.pair = 'x'",
        "pair.toml": "texts.pairwise = '{prompt} {response A} {response B}'",
        "one-slot.toml": "texts.pairwise = '{prompt} {response A}'",
        "slot-c.toml": "texts.pairwise = '{prompt} {response C}'",
        "slot-b.toml": "texts.listwise = '{prompt} {response A} {response B} {response C}'",
        "examples.toml": "examples = [{prompt = 'x', responses = []}]",
        "mistyped.toml": "sytem = 'x'",
        "named.toml": "checkers = 'new.toml'",
        "new.toml": CheckerFile(checkers=(CHECKER,)).text(),
        "version.toml": "version = 9",
        "rows.xlsx": "PK\x03\x04",
        "binary": "\x00\x01",
        "people.jsonl": "\n".join(json.dumps({"id": id, "label": label}) for id, label in ("xA", "yB")),
    }
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n" if text else "")
    (folder / "latin.toml").write_bytes(b"system = '\xff'")
    (folder / "mine.jsonl").write_text('{"mine": 1}\n{"torn')
    (folder / "latin.csv").write_bytes("prompt,response\nStraße\x81,x\n".encode("latin-1"))
    (folder / "folder").mkdir()
    out = judge_to(folder / "out.jsonl", [PAIR, {**PAIR, "id": "y"}], lambda _: "<preference>A</preference>")
    (folder / "torn.jsonl").write_bytes(out.read_bytes()[:-9])
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[EndpointServer]:
    """Serve the models `m`, which never gives a verdict, `locked` and `short`."""

    def answer(body: dict[str, Any]) -> Any:
        if body["model"] == "locked":
            return JSONResponse({"error": {"message": "Incorrect API key provided"}}, 401)
        if body["model"] == "short":
            return JSONResponse({"error": {"message": "maximum context length is 8192 tokens"}}, 400)
        return chat("I cannot say.")

    with serving() as server:
        server.script = answer
        yield server


def misused(command: str, folder: Path, server: EndpointServer) -> Result:
    tools = f"--retries 0 --base-url {server.url} " + "--model m " * (
        not command.endswith(("locked", "short"))
    )
    words = (
        command.replace("SERVED", f"--no-tools {tools}").replace("TOOLS", tools).replace("URL", server.url)
    )
    keys = dict.fromkeys(
        ("OPENAI_BASE_URL", "OPENAI_API_KEY", "TIRJUDGE_API_KEY", "TIRJUDGE_SANDBOX_URL", "COLUMNS")
    )
    with chdir(folder):
        run = CliRunner().invoke(app, words.split(), env={**keys, "HF_HUB_OFFLINE": "1"})
    if run.exception is not None and not isinstance(run.exception, SystemExit):
        raise AssertionError(command) from run.exception
    for unwanted in ("Traceback", "sk-secret", "\x1b"):
        assert unwanted not in run.output
    return run


@pytest.mark.parametrize("command", REFUSED)
def test_misuse_is_refused_in_one_line(command: str, folder: Path, server: EndpointServer) -> None:
    given = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    server.asked.clear()
    run = misused(command, folder, server)
    assert (run.exit_code, run.stdout) == (2, "")
    said = [line for line in run.stderr.splitlines() if not line.startswith("judging with ")]
    assert REFUSED[command] in said[-1]
    if not said[-1].startswith("Error: "):  # Typer's own errors come with the usage
        assert said[-1].startswith(f"tirjudge {command.split()[0]}")
        assert len(said) == 1
    assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == given
    assert not server.asked


@pytest.mark.parametrize("command", FAILED)
def test_a_run_without_any_verdict_says_why(command: str, folder: Path, server: EndpointServer) -> None:
    run = misused(command, folder, server)
    assert run.exit_code == 1
    assert "no row got a verdict: " in run.stderr.splitlines()[-1]
    assert FAILED[command] in run.stderr


def test_a_missing_file_to_inspect_has_an_exit_code_of_its_own(folder: Path, server: EndpointServer) -> None:
    run = misused("data inspect missing.jsonl", folder, server)
    assert (run.exit_code, "missing.jsonl" in run.stderr) == (3, True)
