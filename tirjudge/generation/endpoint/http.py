"""HTTP client of a JSON endpoint: a concurrency limit, retries with backoff, errors in one line."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import time
from asyncio import Semaphore, sleep, timeout
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.endpoint.event_stream import StreamBroken, is_stream, joined, says_failed
from tirjudge.generation.endpoint.refusals import EndpointRefused, complaint, json_of
from tirjudge_environments.registry import first_fault

if TYPE_CHECKING:  # they cost a tenth of a second, which every command would pay for its help
    from ssl import SSLContext

    import httpx
    from tenacity import RetryCallState

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=BaseModel)

TRANSIENT = {408, 409, 424, 425, 429, 498, 499}
"""Statuses that are retried, in addition to all of 5xx."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds: the backoff doubles from the first to the longest pause; a Retry-After may be longer."""
LONGEST_RETRY_AFTER = 300.0
"""Seconds; a longer Retry-After is a spent quota, and waiting for it would look like a hang."""
FIRST_CONTACT = 3
"""Attempts at an endpoint that has never answered: its address is probably wrong."""
TIMEOUT = 600.0
"""Seconds of one attempt by default: a thinking model may take minutes."""
RETRIES = 7
"""Further attempts after the first one, by default."""
LONGEST_CONNECT = 20.0
"""Seconds to open a connection; a longer `timeout` only helps an endpoint that computes."""
SHORT = 5.0
"""Seconds for an answer that a judge can do without."""
_LONG_KEY = 8
"""Characters from which on a key is no part of a word."""
_BETWEEN_WARNINGS = 60.0
"""Seconds between two warnings about retries."""

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of the environment that name the trusted certificates."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The start of an escaped surrogate, alone or one of a pair."""
_REDIRECTS = (301, 302, 303, 307, 308)
_ADVICE = {
    **dict.fromkeys(_REDIRECTS, "this address leads to another one: use the API's own as the base URL"),
    401: "set the key in TIRJUDGE_API_KEY or OPENAI_API_KEY",
    403: "the key may not use this model: check it, and the model's name",
    **dict.fromkeys((404, 405), "check the base URL (it usually ends in /v1) and the model's name"),
}


DENIALS = {*_REDIRECTS, 402, 403, 404, 405}
"""Statuses about the account, the key's rights, the address or the model, which are then the same for every
request; or, from some providers, about the content of one request."""
UNTOLD = 502
"""The status of an error inside a 200 that has none."""
PAID = {402, 403, 429}
"""Statuses that providers use for an account without money or quota left."""
_WAIT = re.compile(
    r"(?:retryDelay\W+|(?:re)?try (?:again )?(?:in|after) (?:about )?)"
    r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?) ?(ms|s)?)?",
    re.IGNORECASE,
)
"""In the body of a 429, how long to wait, such as `try again in 1m2.5s`."""


class _Transient(Exception):
    """A failed attempt that is worth a retry."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Retry:
    """A failed attempt that will be repeated."""

    url: str
    """The API root."""
    reason: str
    """One line without the key."""
    attempt: int
    """The number of the attempt that failed, from 1."""
    attempts: int
    """The most attempts of this request."""
    pause: float
    """Seconds until the next attempt."""

    def __str__(self) -> str:
        return (
            f"{self.url}: {self.reason}; retrying in {self.pause:.1f} s "
            f"(attempt {self.attempt} of {self.attempts} failed)"
        )


class JsonEndpoint:
    """Posts JSON and parses typed answers, with at most `concurrency` requests in flight.

    Further requests wait in order. Timeouts, dropped connections, the statuses `TRANSIENT`, 5xx and answers
    that cannot be parsed are retried with capped exponential backoff and jitter, and never sooner than
    `Retry-After` says (seconds or a date). Each retry is passed to `on_retry`; without one, the first is
    logged as a warning, and then one a minute. The key is sent in a header only: no error, log or repr
    contains it, nor the query of the base URL.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        concurrency: int = 32,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        import httpx

        if concurrency < 1 or retries < 0 or not timeout > 0:
            raise ValueError("concurrency and timeout must be positive, and retries may not be negative")
        url = api_root(base_url, query=True)
        self.url = str(url.copy_with(query=None))
        """The API root; it contains no password and no query, so messages may show it."""
        self._query = url.params
        self._without_query = _WithoutQuery(url.params)
        if self._query:
            logging.getLogger("httpx").addFilter(self._without_query)
        self._key = SecretStr((api_key or "").strip())
        self._timeout, self._attempts = timeout, retries + 1
        self._on_retry, self._warned = on_retry or self._warn, -_BETWEEN_WARNINGS
        self._slots = Semaphore(concurrency)
        self._answered = False
        self.accepted = False
        """True once the endpoint has answered a request."""
        self.denied = False
        """True once the endpoint has refused a request for a reason that holds for every request."""
        try:
            self._client = httpx.AsyncClient(
                headers=_headers(self._key, azure="api-version" in self._query),
                timeout=httpx.Timeout(None, connect=LONGEST_CONNECT),
                verify=_certificates(*map(os.environ.get, _CERTIFICATES)),
                # The semaphore limits the connections: waiting for one in httpx would take time of the
                # attempt.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=concurrency),
            )
        except (OSError, ImportError, httpx.InvalidURL) as error:
            raise ValueError(_bad_environment(error)) from None

    async def post(self, path: str, body: Mapping[str, Any], answer: type[Answer]) -> Answer:
        """Post a JSON body and return the parsed answer.

        Raises EndpointRefused for a 4xx status that is not retried, and GeneratorFailed after the last try.
        """
        from tenacity import AsyncRetrying, retry_if_exception_type

        # Rows may contain lone surrogates, which UTF-8 cannot encode.
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", errors="replace")
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Transient),
            stop=lambda state: state.attempt_number >= self._most_attempts,
            wait=_pause,
            sleep=sleep,
            before_sleep=self._report_retry,
            reraise=True,
        )
        # The slot is kept during the pauses, so that an overloaded endpoint gets fewer requests.
        async with self._slots:
            try:
                return await retrying(self._attempt, f"{self.url}/{path}", content, answer)
            except _Transient as error:
                attempts = retrying.statistics["attempt_number"]
                times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
                raise GeneratorFailed(f"{self.url}/{path}: {error} ({times})") from None

    async def get(self, path: str) -> Any:
        """Return the JSON of a path after one short attempt; None without a JSON answer."""
        import httpx

        try:
            async with timeout(SHORT):
                response = await self._client.get(f"{self.url}/{path}", params=self._query or None)
        except (httpx.RequestError, TimeoutError):
            return None
        return json_of(response) if response.is_success else None

    async def close(self) -> None:
        await self._client.aclose()
        logging.getLogger("httpx").removeFilter(self._without_query)

    async def _attempt(self, url: str, content: bytes, answer: type[Answer]) -> Answer:
        import httpx

        try:
            # Limits the whole attempt: an endpoint may send white space forever, which no read timeout ends.
            async with timeout(self._timeout):
                response = await self._client.post(url, params=self._query or None, content=content)
        except httpx.TimeoutException:
            raise _Transient(f"timed out: no connection within {LONGEST_CONNECT:g} s") from None
        except TimeoutError:
            raise _Transient(f"timed out: no answer within {self._timeout:g} s") from None
        except httpx.RequestError as error:
            raise _Transient(self._line(f"{type(error).__name__}: {error}")) from None
        self._answered = True
        if not response.is_success:
            raise self._failure(response, response.status_code)
        if is_stream(response.content, response.headers.get("content-type", "")):
            try:
                whole = json.dumps(joined(response.content)).encode()
            except StreamBroken as broken:
                raise _Transient(self._line(str(broken))) from None
            response = httpx.Response(200, content=whole, request=response.request)
        # Some gateways report a failure inside a 200, some of them next to a part of an answer.
        if status := _status_in_body(response):
            raise self._failure(response, status)
        try:
            read = answer.model_validate_json(_encodable(response.content))
        except ValidationError as error:
            if status := _status_without_answer(response):
                raise self._failure(response, status) from None
            came = _what_came(response) or first_fault(error, "body")
            raise _Transient(self._line(f"invalid answer: {came}")) from None
        # A server that failed while it generated says so by the finish reason.
        if reason := getattr(read, "failure", ""):
            raise _Transient(self._line(reason))
        self.accepted = True
        return read

    def _failure(self, response: httpx.Response, status: int) -> Exception:
        import httpx

        said = complaint(response)
        message = self._line(said.message)
        line = f"{status} {httpx.codes.get_reason_phrase(status)}: {message}".rstrip(": ")
        address = response.url.copy_with(query=None)
        refused = EndpointRefused("", status=status, message=message, code=said.code, complaint=said)
        if response.is_success and status == UNTOLD:
            # A 200 whose error has no status may be a refusal, which only its words say.
            alike = EndpointRefused("", status=400, message=message, code=said.code, complaint=said)
            if alike.about_row or alike.bad_key or alike.context_full or alike.about_model:
                status, refused, line = 400, alike, message
        # OpenAI answers 429 for a spent quota too, and no pause restores a quota. Anthropic answers 400, as
        # do servers that repeat a part of a row, whose words must not end a run with answered rows.
        ended = refused.quota_spent and (status in PAID or not self.accepted)
        passes = status in TRANSIENT or status >= 500 or refused.busy
        # OpenAI's header, with which a server says that it has waited itself.
        told_not_to = response.headers.get("x-should-retry") == "false"
        if passes and not ended and not refused.context_full and not told_not_to:
            pause = _pause_asked(response.headers, response.text[:20_000])
            if pause is None or pause <= LONGEST_RETRY_AFTER:
                return _Transient(line, pause)
            ended = True
            line += f"; its Retry-After is {pause:.0f} seconds"
        # One server of several behind an address may refuse what others accept.
        told = (status in DENIALS and refused.about_account) or refused.about_model
        about_all = told and not self.accepted
        self.denied |= ended or refused.bad_key or about_all
        advice = _ADVICE[401] if refused.bad_key else _ADVICE.get(status, "")
        return EndpointRefused(
            f"{address}: {line}",
            status=status,
            message=message,
            code=said.code,
            complaint=said,
            advice="" if refused.about_row else advice,
        )

    def _line(self, text: str, limit: int = 300) -> str:
        """Return the endpoint's text as one line without control characters and the key, cut to `limit`."""
        if key := self._key.get_secret_value():
            # A short key, such as `x` for a server without keys, is also a part of words.
            ends = ("", "") if len(key) >= _LONG_KEY else (r"(?<!\w)", r"(?!\w)")
            text = re.sub(f"{ends[0]}{re.escape(key)}{ends[1]}", "[key]", text)
        line = " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())
        return line if len(line) <= limit else line[: limit - 1] + "…"

    @property
    def _most_attempts(self) -> int:
        return self._attempts if self._answered else min(self._attempts, FIRST_CONTACT)

    def _report_retry(self, state: RetryCallState) -> None:
        pause = state.next_action.sleep if state.next_action else 0.0
        error = state.outcome and state.outcome.exception()
        self._on_retry(Retry(self.url, str(error), state.attempt_number, self._most_attempts, pause))

    def _warn(self, retry: Retry) -> None:
        now = time.monotonic()
        due = now - self._warned >= _BETWEEN_WARNINGS
        if due:
            self._warned = now
        logger.log(logging.WARNING if due else logging.INFO, "%s", retry)


class _WithoutQuery(logging.Filter):
    """Leaves the query of an endpoint out of the lines in which httpx logs its requests."""

    def __init__(self, query: httpx.QueryParams) -> None:
        super().__init__()
        self._query = query

    def filter(self, record: logging.LogRecord) -> bool:
        import httpx

        if isinstance(record.args, tuple):
            record.args = tuple(
                one.copy_with(query=None) if isinstance(one, httpx.URL) and one.params == self._query else one
                for one in record.args
            )
        return True


def api_root(base_url: str, *, query: bool = False) -> httpx.URL:
    """Return the API root of a base URL: it ends in /v1 unless the URL has a path of its own.

    With `query` the URL may have one, such as Azure's `?api-version=...`. Raises ValueError, in one line, for
    a URL that is invalid or could contain a secret.
    """
    import httpx

    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    unwanted = url.userinfo or url.fragment or (url.query and not query)
    # A key in the URL would reach logs, so the message does not repeat the URL either.
    if url.scheme not in ("http", "https") or not url.host or unwanted:
        wanted, but = ("[?query]", "user") if query else ("", "user, query")
        raise ValueError(
            f"the base URL must be http(s)://host[:port][/path]{wanted}, with no {but} or fragment"
        )
    path = url.path.rstrip("/").removesuffix("/completions").removesuffix("/chat")
    return url.copy_with(path=path or "/v1")


def _headers(key: SecretStr, *, azure: bool) -> dict[str, str]:
    value = key.get_secret_value()
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ValueError("the API key contains characters that a header cannot carry: copy it again")
    headers = {"content-type": "application/json", "accept": "application/json"}
    if not value:
        return headers
    # Azure's deployments read keys from a header of their own.
    return headers | ({"api-key": value} if azure else {"authorization": f"Bearer {value}"})


def _pause(state: RetryCallState) -> float:
    """Return the seconds before the next attempt."""
    error = state.outcome.exception() if state.outcome else None
    wanted = error.retry_after if isinstance(error, _Transient) else None
    backoff: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(state.attempt_number - 1, 16))
    # Jitter spreads the retries of requests that failed at the same moment.
    if wanted is None:
        return backoff * random.uniform(0.5, 1.0)
    return wanted + random.uniform(0.0, min(backoff, 0.5 + wanted))


def _retry_after(value: str) -> float | None:
    """Parse a Retry-After header to seconds from now; None if it is missing or invalid (RFC 9110, 10.2.3)."""
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _encodable(content: bytes) -> bytes:
    """Replace escapes of lone surrogates, and bytes that are no UTF-8, which models and proxies may write.

    The same request would usually fail again, and the rest of the answer is readable. Other content, JSON or
    not, is returned as it is.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        content.decode()
        if not _SURROGATE.search(content):
            return content
        document = json.loads(content)
    except UnicodeDecodeError:
        try:
            document = json.loads(content.decode(errors="replace"))
        except (ValueError, RecursionError):
            return content
    except (ValueError, RecursionError):
        return content
    # Surrogate pairs are joined on the way; U+FFFD replaces lone surrogates.
    text = json.dumps(document, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _pause_asked(headers: Mapping[str, str], words: str) -> float | None:
    """Return the seconds that a failed answer asks to wait; None if it does not."""
    pause = _retry_after(headers.get("retry-after", ""))
    if pause is None and re.fullmatch(r"\d+", headers.get("retry-after-ms", "")):
        pause = int(headers["retry-after-ms"]) / 1000
    found = _WAIT.search(words) if pause is None else None
    if found is None or not any(found.groups()):
        return pause
    hours, minutes, seconds = (float(part or 0) for part in found.groups()[:3])
    return hours * 3600 + minutes * 60 + (seconds / 1000 if found[4] == "ms" else seconds)


@lru_cache(maxsize=1)
def _certificates(file: str | None, folder: str | None) -> SSLContext:
    """Return the trusted certificates, which httpx reads from the environment; reading takes 70 ms."""
    import httpx

    return httpx.create_ssl_context()


def _bad_environment(error: Exception) -> str:
    """Return why no client can be opened, which only variables of the environment can cause."""
    for name in _CERTIFICATES:
        path = os.environ.get(name)
        if isinstance(error, OSError) and path:
            return f"the environment variable {name} names {path}, which cannot be read as certificates"
    names = [name for name in os.environ if name.lower().endswith("_proxy") and os.environ[name]]
    if isinstance(error, ImportError):
        return f"{', '.join(sorted(names))} names a SOCKS proxy, which needs: pip install 'httpx[socks]'"
    if not names:
        return f"no connection can be made: {error}"
    return (
        f"a proxy variable of the environment ({', '.join(sorted(names))}) cannot be read: {error}; "
        "write an IPv6 address in NO_PROXY without brackets"
    )


def _status_in_body(response: httpx.Response) -> int | None:
    """Return the status of an error that a 200 contains; 502 for an error without a status."""
    body = json_of(response)
    if isinstance(body, list):
        body = next((part for part in body if isinstance(part, dict)), None)
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    told = (body.get("error"), first.get("error") if isinstance(first, dict) else None, body.get("base_resp"))
    error, of_choice, minimax = told
    if isinstance(minimax, dict) and minimax.get("status_code"):
        return _status_of(minimax)
    error = next((one for one in (error, of_choice) if says_failed(one)), None)
    if error is None:
        return None
    return _status_of(error if isinstance(error, dict) else body)


def _status_without_answer(response: httpx.Response) -> int | None:
    """Return the status of a 200 that is no answer and reports an error in another form than `error`."""
    body = json_of(response)
    if not isinstance(body, dict):
        return None
    told = any(body.get(name) for name in ("errors", "error_msg", "error_code", "detail", "msg", "message"))
    failed = body.get("success") is False or "error" in (body.get("object"), body.get("type"))
    return _status_of(body) if told or failed else None


def _status_of(error: Mapping[str, Any]) -> int:
    for name in ("code", "status", "status_code", "statusCode", "http_status"):
        code = error.get(name)
        code = int(code) if isinstance(code, str) and code.isdecimal() else code
        if isinstance(code, int) and 400 <= code < 600:
            return code
    return UNTOLD


def _what_came(response: httpx.Response) -> str:
    """Describe the body of a 200 that is no JSON object; empty for a JSON object."""
    text = response.text.strip()
    if not text:
        return "the body is empty"
    if re.match(r"<(!doctype|html|head|body|\?xml)", text, re.IGNORECASE):
        title = re.search(r"(?is)<title[^>]*>(.*?)</title>", text)
        told = f" with the title {title[1].strip()[:60]!r}" if title and title[1].strip() else ""
        return f"the body is a web page{told}, and no JSON: is this the address of the API?"
    body = json_of(response)
    if isinstance(body, dict):
        return ""
    return f"the body is {text[:60]!r}, and no JSON object"
