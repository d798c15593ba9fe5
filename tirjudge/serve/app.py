"""The routes of the judge server: verdicts, also in OpenAI's form, rewards and operation."""

# No `from __future__ import annotations`: FastAPI reads the routes' annotations, whose names are local here.
from typing import Any

from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.records.answers import JudgeAnswer
from tirjudge.selection.arriving_groups import MembersMissing
from tirjudge.selection.group_rewards import GroupRewards
from tirjudge.serve.chat import CHAT, MODELS, ChatAnswer, ChatRequest, ModelList, OpenAIErrors, ServedModel
from tirjudge.serve.messages import (
    GroupRequest,
    MemberAnswer,
    MemberRequest,
    Questions,
    RewardRequest,
    RewardResponse,
    SampleRequest,
)
from tirjudge.serve.service import Down, JudgeMetrics, JudgeServerSettings, JudgeService
from tirjudge_sandbox import PackageMissing
from tirjudge_sandbox.server.app import REFUSALS, with_operations
from tirjudge_sandbox.server.guard import App

_PATHS = frozenset(
    {
        "/v1/judge", "/v1/group", "/v1/group/member", "/get_reward", "/remote_rm", CHAT, MODELS, "/healthz",
        "/readyz", "/metrics",
    }
)  # fmt: skip
_RETRY = {"retry-after": "1"}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    **REFUSALS,
    503: {
        "description": "The model or the sandbox is down, or the cost limit is reached: nothing was judged."
    },
}
_REWARDS: dict[int | str, dict[str, Any]] = {
    **_ANSWERS,
    502: {"description": "The judge ended without a score, so there is no reward."},
}
_MEMBERS: dict[int | str, dict[str, Any]] = {
    **_ANSWERS,
    424: {"description": "The other completions of the group did not arrive in time: nothing was judged."},
}
_CHAT: dict[int | str, dict[str, Any]] = {
    **{status: answer for status, answer in _ANSWERS.items() if status != 400},
    400: {"description": "The body is not JSON, or a field is not valid: `error.param` names it."},
    404: {"description": "The server has no model of this name."},
}
_MODEL = {status: _CHAT[status] for status in (404, *REFUSALS)}
_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "No question can be judged now; the body says why."}
}


class NoScore(RuntimeError):
    """The judge ended without a score, so there is no reward."""


def create_app(
    engine: JudgeEngine, settings: JudgeServerSettings, *, version: str, truncate: int | None = None
) -> App:
    """Return the server of an open judge as an ASGI application; `truncate`: see `JudgeOptions`.

    Raises PackageMissing without the extra `serve`.
    """
    try:
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
        from fastapi import FastAPI, HTTPException, Request, Response
        from fastapi.responses import JSONResponse
    except ImportError:
        raise PackageMissing("serving needs FastAPI and more: pip install 'tirjudge[serve]'") from None

    app = FastAPI(title="tirjudge", version=version, docs_url=None, redoc_url=None)
    metrics = JudgeMetrics(_PATHS)
    service = JudgeService(engine, metrics, settings.check_seconds, truncate)

    @app.post("/v1/judge", responses=_ANSWERS, tags=["tirjudge"])
    async def judge(asked: Questions) -> JudgeAnswer | list[JudgeAnswer]:
        """Judge one question, or a list of questions; answers keep the order."""
        if isinstance(asked, list):
            return [judgment.answer() for judgment in await service.judge(asked)]
        return (await service.judge_one(asked)).answer()

    @app.post("/v1/group", responses=_ANSWERS, tags=["tirjudge"])
    async def group(asked: GroupRequest) -> GroupRewards:
        """Compare the completions of one prompt, and return a reward for each."""
        return await service.reward_group(asked)

    @app.post("/v1/group/member", responses=_MEMBERS, tags=["tirjudge"])
    async def member(asked: MemberRequest) -> MemberAnswer:
        """Wait until all completions of the group were sent, and return the reward of this one."""
        found, place = await service.reward_member(asked)
        return MemberAnswer(reward=found.rewards[place], group=found)

    @app.post("/get_reward", responses=_REWARDS, tags=["OpenRLHF"])
    async def reward(asked: RewardRequest) -> RewardResponse:
        """Score the responses of a policy."""
        judgments = await service.judge(asked.questions(), "query", field="")
        rewards = [
            _reward(f"query {index}", judgment, settings.no_verdict_reward)
            for index, judgment in enumerate(judgments)
        ]
        return RewardResponse.of(judgments, rewards)

    @app.post("/remote_rm", responses=_REWARDS, tags=["slime"])
    async def remote_rm(asked: SampleRequest) -> float:
        """Score the response of a policy."""
        judgment = await service.judge_one(asked.question(), field="response")
        return _reward("the response", judgment, settings.no_verdict_reward)

    @app.get(MODELS, responses=REFUSALS, tags=["OpenAI"])
    async def models() -> ModelList:
        """Return the judge's model."""
        return ModelList(data=[ServedModel(id=engine.model)])

    @app.get(MODELS + "/{name:path}", responses=_MODEL, tags=["OpenAI"])
    async def model(name: str) -> ServedModel:
        """Return the judge's model, by its name."""
        if name != engine.model:
            raise HTTPException(404, f"there is no model {name!r}; this server has {engine.model!r}")
        return ServedModel(id=name)

    @app.post(CHAT, responses=_CHAT, tags=["OpenAI"])
    async def chat(asked: ChatRequest) -> ChatAnswer:
        """Judge the assistant messages at the end of the conversation."""
        await model(asked.model)
        judgment = await service.judge_one(asked.question(), field="messages")
        return ChatAnswer.of(judgment, engine.model, asked.response_format)

    @app.get("/healthz", tags=["operation"])
    async def alive() -> str:
        """Return `ok` while the server runs."""
        return "ok"

    @app.get("/readyz", responses=_READY, tags=["operation"])
    async def ready() -> str:
        """Return `ok` if the model and the sandbox answer."""
        if reason := await service.check():
            raise Down(reason)
        return "ok"

    @app.exception_handler(Down)
    async def down(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, 503, _RETRY)

    @app.exception_handler(NoScore)
    async def no_score(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, 502)

    @app.exception_handler(MembersMissing)
    async def missing(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, 424, {"x-should-retry": "false"})

    served = with_operations(app, metrics, settings.access, settings.intake)
    app.add_middleware(OpenAIErrors)
    return served


def _reward(scored: str, judgment: Judgment, otherwise: float | None) -> float:
    reward = otherwise if judgment.score is None else judgment.score
    if reward is None:
        raise NoScore(f"{scored}: the judge ended without a score ({judgment.stop.value})")
    return reward
