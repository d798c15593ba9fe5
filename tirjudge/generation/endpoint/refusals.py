"""The refusals of an endpoint: the content of an error's body, and the kind of refusal.

Providers agree on few statuses and on no wording. A refusal is therefore classified by all words of the body,
before the message is cut to a line and the key is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tirjudge.generation.base import GeneratorFailed, SamplingOptions

if TYPE_CHECKING:  # it costs a tenth of a second, which every command would pay for its help
    import httpx

_ANSWER_CUT = "max_tokens or model output limit was reached"
"""In OpenAI's message about an answer whose hidden reasoning took all tokens."""
_CONTEXT_FULL = re.compile(
    r"context[ _-]?(length|window|size|limit)|exceed_context|context_length"
    r"|(prompt|inputs?|request|messages?|conversation|text)( tokens?| length)? (is|are|was|were) (too|longer)"
    r"|too many (input |prompt |total )?tokens|input tokens exceed|maximum prompt length"
    r"|exceeds? the (maximum number of|available|model)|input (token|length)[^.]{0,60}exceed"
    r"|range of input length|reduce the (length|size|number)[^.]{0,40}(prompt|message|input)"
    r"|inputs?`? tokens \+|total (number of )?tokens[^.]{0,40}(exceed|larger|greater)",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request (is )?too large|string too long|string_above_max_length", re.IGNORECASE)
"""A request that no later moment makes small enough: a 429 may say so too."""
_OUTPUT_LIMIT = re.compile(
    r"max(imum)?[_ ]?(completion_|new_|output_)?tokens|maxOutputTokens|(completion|output|generated) tokens",
    re.IGNORECASE,
)
_OF_PROMPT = re.compile(r"\b(prompt|inputs?|messages?)\b(?! validation)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.-])(\d[\d,_]*)(?![\w-]|\.\d)( \(exclusive\))?")
_RANGE = re.compile(
    r"between|range|less than|greater than|at most|at least|<=|>=|maximum|minimum", re.IGNORECASE
)
_STREAM_ONLY = re.compile(
    r"only supports? (the )?stream|stream(ing)?( mode| parameter)? (is|must be|should be|has to be)"
    r"[^.]{0,20}(required|true|enabled|set)|(requires?|enable|must use|must have|set) (the )?[`'\"]?stream"
    r"|for non-?stream|non-?stream\w*[^.]{0,40}(not|un)\s?(be )?(support|allow|available)",
    re.IGNORECASE,
)
_THINKING_WANTED = re.compile(
    r"(missing|must|required?|need|should|lacks?)[^.]{0,80}reasoning_content"
    r"|reasoning_content[^.]{0,80}(missing|must|required?|need|lacks?)",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"api[ _-]?key[^.]{0,40}(invalid|incorrect|not valid|expired|missing|revoked|disabled|required)"
    r"|(invalid|incorrect|expired|missing|revoked|wrong|no|provide) (an? |your |valid )*api[ _-]?key",
    re.IGNORECASE,
)
_SPENT = re.compile(
    r"insufficient[ _](account )?(quota|balance|funds|credit)|exceeded_current_quota"
    r"|(credit|account)? ?balance (is )?(too low|insufficient|not enough)|balance not enough"
    r"|(out of|no|not enough|insufficient|more) credits?\b|arrear|billing[ _](hard|not)"
    r"|余额不足|欠费|积分不足|free-models-per-day|RequestsPerDay",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(
    r"api[ _-]?key|\btoken (is )?(invalid|expired)|authenti|unauthori[sz]ed|not authori[sz]ed|permission"
    r"|credential|credit|balance|billing|payment|quota|subscri|\bplan\b|suspended|deactivated|banned"
    r"|\b(country|region|location|territory)\b|not (have )?access|access to (this|the) model|no access"
    r"|model[^.]{0,80}(not (found|exist|available|support)|does ?n[o']t exist)|no such model|unknown model"
    r"|invalid model|no (allowed|available) providers|no endpoints found|\bip\b|(invalid|unknown) (url|path)"
    r"|no route|resource not found|deployment",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model_(not_found|decommissioned)|invalid_model"
    r"|(invalid|unknown|no such) model( name| id)?( passed| specified|\s*[:.,;'\"`])"
    r"|model[^.]{0,80}(does ?n[o']t exist|not exist|not found|decommissioned|no longer (available|supported))"
    r"|模型不存在",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"tool_use_failed|throttl|too many requests|rate[ _-]?limit|overloaded|try again (later|in)"
    r"|temporar(y|ily)|server (is )?busy|timed? ?out|service unavailable|capacity",
    re.IGNORECASE,
)
_ROW = re.compile(
    r"moderat|flagged|content[ _-]?(polic|filter|management|safety|security|risk|violation|exists)"
    r"|safety|inappropriate|sensitive|harmful|jailbreak|guardrail|prohibited|data ?inspection|high[ _-]risk"
    r"|risk(y)? content|unsafe|offensive|usage polic|violates? (our|the|openai)"
    r"|敏感|违规|违法|不安全|内容安全",
    re.IGNORECASE,
)
_OF_ACCOUNT = re.compile(r"\b(account|organi[sz]ation|workspace|your (api )?key)\b", re.IGNORECASE)
_ECHOED = {"input", "messages", "request", "body", "prompt", "ctx", "url", "doc_url"}
"""Fields of an error in which a server repeats the request or links to explanations."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """The content of the body of an error."""

    message: str
    """The main text, which may have several lines."""
    code: str = ""
    """The endpoint's name of the error; empty if it gives none."""
    field: str = ""
    """The field of the request that is refused, if the body names it apart from the text."""
    words: str = ""
    """All texts of the body, without repeated parts of the request."""


class EndpointRefused(GeneratorFailed):
    """The endpoint rejects this request (a 4xx status); the same request would fail again."""

    def __init__(
        self,
        line: str,
        *,
        status: int,
        message: str,
        code: str = "",
        complaint: Complaint | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(f"{line.rstrip('.')}; {advice}" if advice else line)
        self.plain = line
        """The text without the advice for a request that every row shares."""
        self.status = status
        self.message = message
        """The endpoint's error message, in one line."""
        self.code = code
        """The endpoint's name of the error; empty if it gives none."""
        self.complaint = complaint or Complaint(message, code)
        """The whole body, which is never shown: it may contain the key."""

    @property
    def _said(self) -> str:
        said = self.complaint
        return f"{said.code}: {said.field}: {said.message} {said.words}"

    @property
    def of_fields(self) -> bool:
        """True for a status with which endpoints refuse fields of a request."""
        return self.status in (400, 416, 422)

    @property
    def context_full(self) -> bool:
        """True if the prompt and the requested tokens do not fit into the model's context."""
        said = self._said
        if self.status == 413 or (self.status in (400, 429) and _TOO_LARGE.search(said)):
            return True
        return self.status in (400, 422, 500) and bool(_CONTEXT_FULL.search(said))

    @property
    def answer_cut(self) -> bool:
        """True if the model spent all requested tokens before the answer began."""
        return self.status == 400 and _ANSWER_CUT in self.complaint.message

    @property
    def stream_only(self) -> bool:
        """True if the endpoint answers only as a stream."""
        return self.of_fields and bool(_STREAM_ONLY.search(self._said))

    @property
    def wants_thinking(self) -> bool:
        """True if the turns of the judge lack the thinking that the endpoint had returned with them."""
        return self.of_fields and bool(_THINKING_WANTED.search(self._said))

    @property
    def about_row(self) -> bool:
        """True if the endpoint says that this request's content is refused."""
        said = self._said
        return bool(_ROW.search(said)) and not _OF_ACCOUNT.search(said) and not self.about_account

    @property
    def about_account(self) -> bool:
        """True if the endpoint says that every request of this key, account, place or model is refused."""
        said = self._said
        if self.status == 401 or _BAD_KEY.search(said) or self.quota_spent:
            return True
        return bool(_ACCOUNT.search(said)) and not _ROW.search(said)

    @property
    def about_model(self) -> bool:
        """True if a status of refused rows says that the endpoint does not have the model."""
        return self.status == 400 and bool(_MODEL.search(self._said)) and not self.about_row

    @property
    def bad_key(self) -> bool:
        """True if the endpoint does not accept the key."""
        return self.status == 401 or (self.status in (400, 403) and bool(_BAD_KEY.search(self._said)))

    @property
    def busy(self) -> bool:
        """True for a failure of the server, or a limit of its rate, under the status of a refusal."""
        refused = self.about_row or self.quota_spent or self.bad_key or self.context_full
        return self.status in (400, 403) and not refused and bool(_BUSY.search(self._said))

    @property
    def quota_spent(self) -> bool:
        """True if the account has no money or quota left, which no pause restores."""
        return bool(_SPENT.search(self._said))

    def output_limit(self, asked: int) -> int | None:
        """Return the longest answer that the model can give, if `asked` tokens are too many; else None."""
        said = self._said
        named = self.of_fields and _OUTPUT_LIMIT.search(said) and not _OF_PROMPT.search(said)
        found = _NUMBER.findall(said) if named else []
        numbers = [int(re.sub("[,_]", "", number)) - bool(exclusive) for number, exclusive in found]
        return max((number for number in numbers if 1 < number < asked), default=None)

    def names(self, name: str) -> bool:
        """Return True if the body contains the name of a field."""
        return bool(re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_])", self._said))

    def named(self, name: str, value: Any) -> bool:
        """Return True if the body is about the field `name` of the request, which was sent with `value`."""
        said = self.complaint
        if not self.of_fields or self.context_full or not self.names(name):
            return False
        # A number that a user chose may be out of the range that the model accepts, which only they can mend.
        both = re.search("temperature.*top_p|top_p.*temperature", said.message, re.DOTALL)
        chosen = name in SamplingOptions.model_fields and bool(value) and not both
        return not (chosen and _RANGE.search(said.message))


def complaint(response: httpx.Response) -> Complaint:
    """Return what an error body says, in any of the formats in use."""
    body = json_of(response)
    if isinstance(body, list):  # Gemini
        body = next((part for part in body if isinstance(part, dict)), None)
    if not isinstance(body, dict):
        # An HTML error page, without its markup.
        text = re.sub(r"(?is)<(style|script|head)\b.*?</\1>|<[^>]*>", " ", response.text[:20_000])
        return Complaint(text, words=text)
    words = " ".join(_texts(body))
    error = body.get("error") or body.get("detail") or body.get("errors") or body.get("base_resp") or body
    if isinstance(error, list):  # FastAPI's list of invalid fields
        field = next((item for item in error if isinstance(item, dict)), {})
        place = field.get("loc")
        where = str(place[-1]) if isinstance(place, list) and place else ""
        message = str(field.get("msg") or field.get("message") or error)
        return Complaint(f"{where}: {message}" if where else message, "", where, words)
    if not isinstance(error, dict):
        return Complaint(str(error), str(body.get("code") or ""), "", words)
    names = ("message", "msg", "error_msg", "status_msg", "detail", "error")
    message = next((error[name] for name in names if error.get(name)), None) or json.dumps(error)
    code = str(error.get("code") or body.get("code") or "")
    param = error.get("param")
    return Complaint(str(message), code, param if isinstance(param, str) else "", words)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a JSON value, without repeated parts of the request."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _ECHOED and depth < 8:
                yield from _texts(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value[:50]:
            if depth < 8:
                yield from _texts(inner, depth + 1)
    elif isinstance(value, str):
        yield value


def json_of(response: httpx.Response) -> Any:
    """Return the JSON of a response; None if it has none."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None
