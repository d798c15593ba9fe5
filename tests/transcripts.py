"""A row whose responses are transcripts of two agents, in OpenAI's form."""

from __future__ import annotations

import json
from typing import Any


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def said(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
RIGHT = [
    calling(call("c1", "get_weather", city="Paris"), call("c2", "get_weather", city="Rome")),
    result("c1", "12 degrees"),
    result("c2", "19 degrees"),
    said("Rome is warmer: 19 degrees against 12."),
]
WRONG = [
    calling(call("c1", "get_weather", city="Paris")),
    result("c1", "12 degrees"),
    said("Paris is warmer."),
]
ROW: dict[str, Any] = {
    "id": "weather",
    "prompt": "Which is warmer now, Paris or Rome?",
    "responses": [RIGHT, WRONG],
    "label": 0,
    "tools": TOOLS,
}
COMPARE = """import json
for name, messages in zip("AB", responses):
    calls = [call["function"] for message in messages for call in message.get("tool_calls", [])]
    print(name, sorted(json.loads(call["arguments"])["city"] for call in calls))
print("more cities:", "A" if len(response_a[0]["tool_calls"]) > len(response_b[0]["tool_calls"]) else "B")
"""
COMPARED = "A ['Paris', 'Rome']\nB ['Paris']\nmore cities: A\n"
