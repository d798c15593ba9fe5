"""The timeout and the retries of further models: the MetaJudge, and a teacher of a distillation."""

from __future__ import annotations

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, failure
from tirjudge.generation.base import Generator, GeneratorFailed, Sampling
from tirjudge.judging.meta_judge import MetaJudgeConfig
from tirjudge_environments import Context, Message, Prompt
from tirjudge_training.distillation.config import CorrectorConfig, TeacherConfig


def opened(kind: str, url: str, **options: float) -> Generator:
    if kind == "meta judge":
        return MetaJudgeConfig(model="m", base_url=url, **options).generator()
    teacher = TeacherConfig(model="m", base_url=url, corrector=CorrectorConfig(model="c"), **options)
    corrector = teacher.open_corrector()
    assert corrector is not None
    return teacher.open_teacher() if kind == "teacher" else corrector


@pytest.mark.parametrize("kind", ["meta judge", "teacher", "corrector"])
async def test_a_failing_or_hanging_endpoint_is_given_up_as_configured(
    kind: str, server: EndpointServer
) -> None:
    context = Context(Prompt(messages=(Message("user", "?"),)))
    server.answers(failure(500, "oops"))
    model = opened(kind, server.url, retries=0)
    with pytest.raises(GeneratorFailed, match=r"500.*\(1 attempt\)"):
        await model.generate(context, Sampling(max_tokens=5))
    assert len(server.asked) == 1
    await model.close()
    server.delay = 5.0
    model = opened(kind, server.url, retries=0, timeout=0.2)
    with pytest.raises(GeneratorFailed, match=r"no answer within 0.2 s \(1 attempt\)"):
        await model.generate(context, Sampling(max_tokens=5))
    await model.close()
