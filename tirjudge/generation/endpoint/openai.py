"""A generator for any OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, Ollama, hosted models.

The turns of a chat request, the answers and the end of a completion have modules of their own here.
"""

from __future__ import annotations

import logging
import re
from asyncio import Lock
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from tirjudge.generation.base import ContextTooLong, GeneratorFailed, Sampling, Withheld
from tirjudge.generation.endpoint.adaptation import Learnt
from tirjudge.generation.endpoint.answers import ChatAnswer, TokenAnswer, estimated
from tirjudge.generation.endpoint.chat_turns import ChatTurn, alternating, offered, sent_texts, unfinished
from tirjudge.generation.endpoint.finish import restored
from tirjudge.generation.endpoint.http import DENIALS, RETRIES, TIMEOUT, JsonEndpoint, Retry
from tirjudge.generation.endpoint.prompt_counts import PromptCounts
from tirjudge.generation.endpoint.refusals import EndpointRefused
from tirjudge.generation.endpoint.request_fields import DISPENSABLE, HARMLESS, SERVER_FIELDS, check_fields
from tirjudge.generation.model_files import load_encoder
from tirjudge_environments import Completion, Context, Finish, Prompt, Usage
from tirjudge_environments.tokenization import ChatEncoder

logger = logging.getLogger(__name__)

Tier = Literal["auto", "completions", "turns", "tools"]
Answer = TypeVar("Answer", bound=BaseModel)


class OpenAIGenerator:
    """Generates through an OpenAI-compatible endpoint, in one of three tiers.

    * ``completions``: token ids in and out (vLLM's ``return_token_ids``), with the logprobs of what was
      sampled. Ids are appended and never re-encoded: the tier for training. Needs a tokenizer.
    * ``turns``: plain chat; program outputs are sent as user turns. Works everywhere.
    * ``tools``: native calls (``run_python``), their outputs as tool messages. A prompt that offers tools
      always uses them; a prompt that offers none is plain chat.
    * ``auto``: ``tools`` if the prompt offers tools, ``completions`` if a tokenizer was given, else
      ``turns``.

    Belongs to one event loop. Raises ValueError for invalid arguments, and GeneratorFailed for a tokenizer
    that cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        tier: Tier = "auto",
        tokenizer: Any = None,
        enable_thinking: bool | None = None,
        concurrency: int = 32,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        request_fields: Mapping[str, Any] | None = None,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        """
        Args:
            model: the model's name at the endpoint.
            base_url: with or without the trailing ``/v1``; a query such as ``?api-version=...`` is kept.
            api_key: sent as a bearer token, or as Azure's ``api-key`` if the query has an ``api-version``;
                None for an endpoint without keys.
            tier: see above.
            tokenizer: the model's tokenizer, for ``completions``: a fast Hugging Face tokenizer, or the
                folder or hub id of one, whose generation config then also gives the tokens that end a turn.
            enable_thinking: for ``completions`` see `ChatEncoder`; chat tiers send it to the endpoint's chat
                template (``chat_template_kwargs``: vLLM, SGLang). None leaves it to the endpoint.
            concurrency: requests in flight at once, over all trajectories.
            timeout: seconds that one attempt may take.
            retries: further attempts after a temporary failure.
            request_fields: further fields of every request, such as ``reasoning_effort``. The judge's own
                are refused, but None leaves out ``temperature``, ``top_p``, ``seed`` or ``stop``. Without
                ``stop`` a model may write past its program, which the session then cuts off.
            on_retry: called for every retry; see `JsonEndpoint`.
        """
        if tier not in get_args(Tier):
            raise ValueError(f"tier must be one of {', '.join(get_args(Tier))}, not {tier!r}")
        if tier == "completions" and tokenizer is None:
            raise ValueError("tier completions sends token ids: it needs the model's tokenizer")
        with_ids = tokenizer is not None and tier in ("auto", "completions")
        self.model = model
        encoder = load_encoder if isinstance(tokenizer, str) else ChatEncoder
        self.encoder = encoder(tokenizer, enable_thinking=enable_thinking) if with_ids else None
        self._enable_thinking = enable_thinking
        self._tier = tier
        self._endpoint = JsonEndpoint(
            base_url,
            api_key=api_key,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            on_retry=on_retry,
        )
        fields = dict(request_fields or {})
        check_fields(fields)
        left_out = frozenset(name for name, value in fields.items() if value is None and name in DISPENSABLE)
        self._fields = {name: value for name, value in fields.items() if name not in left_out}
        self._learnt = Learnt(left_out=left_out)
        self._noted: set[str] = set()
        self._prompts = PromptCounts()
        self._probing = Lock()
        self._context_length: int | None = None
        self._card: Mapping[str, Any] | None = None
        self._listing = Lock()

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Generate one turn; cancelling closes the connection. Raises GeneratorFailed, ContextTooLong."""
        tier = self._tier_for(context.prompt)
        try:
            if tier == "completions":
                return await self._complete(context, sampling)
            return await self._chat(context, sampling)
        except EndpointRefused as refusal:
            if refusal.context_full:
                raise ContextTooLong(
                    f"{refusal}; shorten the row, or use a model with a longer context"
                ) from None
            raise

    @property
    def denied(self) -> bool:
        """True once the endpoint has refused a request for a reason that holds for every request."""
        return self._endpoint.denied

    async def card(self) -> Mapping[str, Any]:
        """Return this model's entry in the endpoint's list of models; empty without an entry."""
        # Rows that start together would otherwise each ask for the list.
        async with self._listing:
            if self._card is None:
                listed = await self._endpoint.get("models")
                cards = listed.get("data") if isinstance(listed, dict) else None
                own = (one for one in cards or () if isinstance(one, dict) and one.get("id") == self.model)
                self._card = next(own, {})
        return self._card

    async def close(self) -> None:
        await self._endpoint.close()

    def _tier_for(self, prompt: Prompt) -> str:
        if prompt.tools and self._tier == "completions":
            raise GeneratorFailed(
                "tier completions has no native tools: use tier tools, or the fence protocol"
            )
        return "completions" if self.encoder and not prompt.tools else "turns"

    async def _complete(self, context: Context, sampling: Sampling) -> Completion:
        if self.encoder is None or context.ids is None:
            raise GeneratorFailed(
                "tier completions needs the context's token ids: pass this generator's encoder to the session"
            )
        body = {
            # Only vLLM returns token ids.
            **self._request(context.prompt, sampling, "vllm"),
            **sampling.parameters,
            "prompt": list(context.ids),
            # The server's own end-of-turn tokens may be those of another model.
            "stop_token_ids": sorted(self.encoder.end_of_turn),
            "logprobs": 1,
            "return_token_ids": True,
            # A stop string that is a special token is only seen in a text that shows them.
            "skip_special_tokens": False,
            **self._fields,
        }
        answer = await self._ask_within_context(body, len(context.ids))
        choice = answer.choices[0]
        if choice.token_ids is None or choice.logprobs is None:
            raise GeneratorFailed(
                f"{self._endpoint.url} returns no token ids or no logprobs: "
                "tier completions needs vLLM 0.10.2 or newer; tier turns needs neither"
            )
        ids, logprobs = tuple(choice.token_ids), tuple(choice.logprobs.token_logprobs)
        if len(ids) != len(logprobs):
            raise GeneratorFailed(
                f"{self._endpoint.url} returned {len(ids)} token ids, but {len(logprobs)} logprobs"
            )
        stopped = choice.stop_string in context.prompt.stop
        return Completion(
            text=self.encoder.decode(ids),
            finish=Finish.STOP if stopped else choice.finish,
            finish_word=choice.ending[1] if choice.finish is Finish.UNKNOWN else "",
            token_ids=ids,
            logprobs=logprobs,
            usage=Usage(len(context.ids), len(ids)),
        )

    async def _ask_within_context(self, body: dict[str, Any], prompt_length: int) -> TokenAnswer:
        """Request as many tokens as fit; the context's length is read from the endpoint's first refusal."""
        wanted = body["max_tokens"]
        try:
            if self._context_length is not None:
                body["max_tokens"] = max(1, min(wanted, self._context_length - prompt_length))
            return (await self._ask("completions", body, TokenAnswer))[0]
        except EndpointRefused as refusal:
            length = re.search(r"context length (?:is|of) (\d+)", refusal.complaint.message)
            if length is None or int(length[1]) <= prompt_length:
                raise
            self._context_length = int(length[1])
            body["max_tokens"] = min(wanted, self._context_length - prompt_length)
            return (await self._ask("completions", body, TokenAnswer))[0]

    async def _chat(self, context: Context, sampling: Sampling) -> Completion:
        prompt = context.prompt
        server = str((await self.card()).get("owned_by"))
        body = self._request(prompt, sampling, server)
        if prompt.tools:
            body["tools"] = list(offered(prompt.tools))
        # After all others: a user may replace the neutral sampling.
        body |= self._fields
        if self._enable_thinking is not None:
            template = self._fields.get("chat_template_kwargs", {})
            body["chat_template_kwargs"] = {"enable_thinking": self._enable_thinking, **template}
        try:
            answer, sent = await self._ask("chat/completions", body, ChatAnswer, context)
        except EndpointRefused as refusal:
            if refusal.answer_cut:
                # OpenAI answers so in place of an empty text with the finish reason `length`.
                spent = Usage(_estimated_prompt(self._turns(context), body), sampling.max_tokens)
                return Completion(text="", finish=Finish.LENGTH, usage=spent)
            if not refusal.context_full:
                raise
            # Without max_tokens the endpoint generates as much as fits.
            del body["max_tokens"]
            answer, sent = await self._ask("chat/completions", body, ChatAnswer, context)
        usage = answer.usage
        if not usage.prompt_tokens:
            usage = replace(usage, prompt_tokens=_estimated_prompt(sent["messages"], sent))
        try:
            self._prompts.check(list(sent_texts(sent)), answer.counts)
            return replace(self._read(answer, context), usage=usage)
        except GeneratorFailed as error:
            error.usage = usage
            raise

    def _request(self, prompt: Prompt, sampling: Sampling, server: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            **SERVER_FIELDS.get(server, {}),
            "model": self.model,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            # Some servers store a seed in 32 bits.
            "seed": sampling.seed & 0x7FFFFFFF,
            # Some hosted models accept a temperature or a top_p, but not both.
            **sampling.truncation,
        }
        return body | ({"stop": list(prompt.stop)} if prompt.stop else {})

    async def _ask(
        self, path: str, body: Mapping[str, Any], answer: type[Answer], context: Context | None = None
    ) -> tuple[Answer, dict[str, Any]]:
        """Return the answer, and the request as sent: without fields that the endpoint refuses."""
        learnt = self._learnt
        # The loop ends: each adaptation changes a field for good, and few fields can change.
        while True:
            sent = learnt.applied(body)
            if context is not None:
                sent["messages"] = self._turns(context, learnt)
            try:
                found = await self._endpoint.post(path, sent, answer)
            except EndpointRefused as refusal:
                adapted = learnt.adapted(refusal, sent)
                if adapted is None:
                    raise await self._refusal(refusal, path, answer) from None
                learnt = adapted
            else:
                # Only now, so that a refusal for another reason costs no later request a field.
                self._learn(learnt)
                return found, sent

    def _learn(self, learnt: Learnt) -> None:
        for line in learnt.notes:
            if line not in self._noted:
                self._noted.add(line)
                logger.warning("%s", line)
        # Another request may have learnt something else in the meantime.
        self._learnt = self._learnt.joined(learnt)

    def _turns(self, context: Context, learnt: Learnt | None = None) -> list[ChatTurn]:
        tokens = self.encoder.control_tokens if self.encoder else frozenset()
        learnt = learnt or self._learnt
        turns = alternating(context, tokens, thinking=learnt.thinking, unwanted=learnt.unwanted)
        for turn in turns if learnt.empty_texts else ():
            turn["content"] = turn["content"] or ""
        return turns

    async def _refusal(self, refusal: EndpointRefused, path: str, answer: type[BaseModel]) -> GeneratorFailed:
        """Return the error to raise for a refusal: of this request alone, or of every request."""
        if refusal.context_full or refusal.answer_cut or self.denied:
            return refusal
        if refusal.about_row:
            return Withheld(str(refusal))
        if refusal.status not in DENIALS:
            return refusal
        async with self._probing:
            if not (self._endpoint.accepted or self.denied):
                await self._probe(path, answer)
        if self.denied or not self._endpoint.accepted:
            return refusal
        return Withheld(f"{refusal.plain}; the endpoint refuses this row, and answers others")

    async def _probe(self, path: str, answer: type[BaseModel]) -> None:
        """Ask a harmless question, to tell one refused row from a refused key."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": 16, **self._fields}
        body |= {"messages": [{"role": "user", "content": HARMLESS}]} if path != "completions" else {}
        body |= {"prompt": HARMLESS} if path == "completions" else {}
        try:
            await self._endpoint.post(path, self._learnt.applied(body), answer)
        except EndpointRefused as again:
            # A complaint about the request's form comes from a model that the key may use.
            refused = again.status in DENIALS or again.about_model
            self._endpoint.denied |= refused
            self._endpoint.accepted |= not refused and not self.denied
        except GeneratorFailed:
            pass

    def _read(self, answer: ChatAnswer, context: Context) -> Completion:
        choice, prompt = answer.choices[0], context.prompt
        message, finish = choice.message, choice.finish
        text = message.content or message.refusal or ""
        if not context.segments:
            # The request does not carry the prefill, so the model writes the prefill.
            text = text.removeprefix(prompt.prefill)
        stops = () if "stop" in self._learnt.left_out else prompt.stop
        word = choice.ending[1] if finish is Finish.UNKNOWN else ""
        if finish is not Finish.UNKNOWN:
            text, finish = restored(unfinished(context), text, finish, stops, choice.stop_string)
        calls = tuple(message.calls(turn=len(context.segments)))
        wrote = text or calls or message.reasoning or (answer.counts and answer.counts.completion_tokens)
        if finish is Finish.END and not wrote:
            finish, word = Finish.UNKNOWN, "an empty answer"
        elif word and word not in self._noted:
            self._noted.add(word)
            logger.warning(
                "%s ends answers with the unknown reason %r: they count only with a whole program or verdict",
                self._endpoint.url,
                word,
            )
        return Completion(
            text=text,
            finish=Finish.TOOL_CALL if calls and finish is not Finish.UNKNOWN else finish,
            finish_word=word,
            reasoning=message.reasoning,
            tool_calls=calls,
            further=message.kept if calls else {},
            usage=answer.usage,
        )


def _estimated_prompt(turns: list[ChatTurn], body: Mapping[str, Any]) -> int:
    return estimated(*sent_texts({**body, "messages": turns}))
