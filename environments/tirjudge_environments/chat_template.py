"""Chat templates, which are programs of strangers: each is rendered in a process of its own, with limits.

A template may loop, or build a text of gigabytes in one operation that nothing in the same process could
interrupt. Names and settings are those that transformers gives a template.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_CPU_SECONDS = 5
_WALL_SECONDS = 60
_MEMORY_BYTES = 1 << 30
_LONGEST = 1 << 20
"""Characters of a template, and of a rendered dialogue."""
_CHILD = r"""
import json, resource, sys
from datetime import datetime
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

given = json.load(sys.stdin)
for limit, most in given["limits"].items():
    resource.setrlimit(getattr(resource, limit), (most, most))


class Generation(Extension):
    # A block that marks the model's text for training is rendered as its content.
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def refuse(message):
    raise ValueError(f"it refuses this dialogue: {message}")


def now(layout):
    return datetime.now().strftime(layout)


def to_json(value, ensure_ascii=False, **options):
    # Jinja's own filter escapes characters for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


try:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.globals.update(raise_exception=refuse, strftime_now=now)
    environment.filters["tojson"] = to_json
    text = environment.from_string(given["template"]).render(**given["values"])
    if len(text) > given["longest"]:
        raise ValueError(f"it writes {len(text)} characters")
    found = {"text": text}
except MemoryError:
    found = {"error": f"it takes more than {given['limits']['RLIMIT_AS'] >> 30} GiB"}
except Exception as error:
    found = {"error": str(error).partition("\n")[0] or type(error).__name__}
sys.stdout.write(json.dumps(found))
"""


def rendered(template: str, messages: Sequence[dict[str, str]], **values: Any) -> str:
    """Return a dialogue as a template writes it; `values` are further variables of the template.

    Raises ValueError, in one line, for a template that cannot be rendered within 5 s of CPU time and 1 GiB.
    """
    return _rendered(template, json.dumps({"tools": None, "documents": None, **values, "messages": messages}))


@lru_cache(maxsize=64)
def _rendered(template: str, values: str) -> str:
    found = _in_a_child(template, json.loads(values))
    if "error" in found:
        raise ValueError(f"the chat template cannot be rendered: {found['error']}")
    return str(found["text"])


def _in_a_child(template: str, values: dict[str, Any]) -> dict[str, str]:
    if len(template) > _LONGEST:
        return {"error": f"it has more than {_LONGEST:,} characters"}
    given = {
        "template": template,
        "values": values,
        "longest": _LONGEST,
        "limits": {"RLIMIT_CPU": _CPU_SECONDS, "RLIMIT_AS": _MEMORY_BYTES, "RLIMIT_CORE": 0},
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _CHILD],
            input=json.dumps(given).encode(),
            capture_output=True,
            timeout=_WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it takes more than {_WALL_SECONDS} s"}
    if done.returncode < 0:
        return {"error": f"it takes more than {_CPU_SECONDS} s"}
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return {"error": lines[-1] if lines else f"its process ended with {done.returncode}"}
