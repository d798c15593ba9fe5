"""The refusals of an endpoint: what an error's body says, and which kind of refusal it is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tirjudge.generation.base import GeneratorFailed

if TYPE_CHECKING:  # it costs a tenth of a second, which every command would pay for its help
    import httpx

_ANSWER_CUT = "max_tokens or model output limit was reached"
"""In OpenAI's message about an answer whose hidden reasoning took all tokens."""
_CONTEXT_FULL = re.compile(
    r"context[ _](length|window|size)|(prompt|input) is too long|input tokens exceed|maximum prompt length"
    r"|exceeds the maximum number of tokens",
    re.IGNORECASE,
)


class Refused(GeneratorFailed):
    """The endpoint rejects this request (a 4xx status); the same request would fail again."""

    def __init__(self, line: str, *, status: int, message: str, code: str = "") -> None:
        super().__init__(line)
        self.status = status
        self.message = message
        """The endpoint's error message, in one line."""
        self.code = code
        """The endpoint's name of the error; empty if it gives none."""

    @property
    def context_full(self) -> bool:
        """True if the prompt and the requested tokens do not fit into the model's context."""
        said = f"{self.code}: {self.message}"
        return self.status in (400, 413, 422) and bool(_CONTEXT_FULL.search(said))

    @property
    def answer_cut(self) -> bool:
        """True if the model spent all requested tokens before the first one of its answer."""
        return self.status == 400 and _ANSWER_CUT in self.message


def complaint(response: httpx.Response) -> tuple[str, str]:
    """Return the message and the code of an error body, in any of the formats in use."""
    body = json_of(response)
    if not isinstance(body, dict):
        # An HTML error page, without its markup.
        return re.sub(r"(?is)<(style|script|head)\b.*?</\1>|<[^>]*>", " ", response.text[:20_000]), ""
    error = body.get("error") or body.get("detail") or body
    if isinstance(error, list):  # FastAPI's list of invalid fields
        field = next((item for item in error if isinstance(item, dict)), {})
        place = field.get("loc")
        return f"{place[-1]}: {field.get('msg')}" if isinstance(place, list) and place else str(
            field.get("msg")
        ), ""
    if not isinstance(error, dict):
        return str(error), str(body.get("code") or "")
    return str(error.get("message") or json.dumps(error)), str(error.get("code") or "")


def json_of(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None
