"""verl: a judge as an agent loop, token ids in and out, and the sandbox as a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.profiler import simple_timer

from tirjudge_environments.adapters.dialogues import (
    TASK_COLUMN,
    VERL_MANAGER,
    SandboxThread,
    read_row,
    read_stored_task,
    require_one_answer,
    reward_of,
    row_view,
    score_together,
)
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.boundary import replaced_marks
from tirjudge_environments.programs.outputs import output_text
from tirjudge_environments.quoting import quote_control_tokens, with_look_alikes, without_look_alikes
from tirjudge_environments.registry import with_tools
from tirjudge_environments.session import GIVE_VERDICT, JudgeSession, Transcript
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_environments.types import Completion, Finish, JudgeTask, Refused, Reward, Trajectory, View
from tirjudge_sandbox import Program, Status, run_with_isolated


class JudgeLoop(AgentLoopBase):
    """A judge's dialogue. Name it in the file at `actor_rollout_ref.rollout.agent.agent_loop_config_path`:

        - name: judge
          _target_: tirjudge_environments.adapters.verl.JudgeLoop
          settings: {judge: tir-pairwise}

    and set `agent_name: judge` in every row, with the judge's row in `extra_info`, or its task as JSON in the
    field `task` (`dialogues.write_task`). The prompt, the ids of the sandbox's text and the mask equal
    those of our own engine; the model's ids are as sampled. A judge whose reward links the views of a task
    also needs `agent.agent_loop_manager_class` set to `dialogues.VERL_MANAGER`: a rollout is then one of
    every view.
    """

    def __init__(self, *args: Any, settings: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Validate `settings`, the fields of `JudgeSettings`; raises ValueError for a bad one."""
        super().__init__(*args, **kwargs)
        found = JudgeSettings.model_validate(dict(settings or {}))
        longest = min(found.tokens, self.rollout_config.response_length)
        self._settings = found.model_copy(update={"tokens": longest})
        template_options = getattr(self, "apply_chat_template_kwargs", None) or {}
        self._encoder = ChatEncoder(self.tokenizer, enable_thinking=template_options.get("enable_thinking"))
        self._thread = SandboxThread.shared(found)
        self._judge = with_tools(found.environment, self._thread.tools)

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Play one rollout; a list with one of every view if the reward links the views.

        Raises ValueError for a bad row, LinkedViews for a judge with linked views without their manager, and
        RuntimeError for an unscored rollout, which verl cannot represent.
        """
        info, judge = row["extra_info"], self._judge
        task = self._task(info)
        managed = self.rollout_config.get("agent", {}).get("agent_loop_manager_class") == VERL_MANAGER
        linked = judge.linked and managed
        require_one_answer(judge, task, "verl")
        views = judge.views(task) if linked else (row_view(judge, task, info, "verl"),)
        played = await asyncio.gather(*(self._play(task, view, sampling_params) for view in views))
        scores = score_together(judge, task, [trajectory for trajectory, *_ in played])
        outputs = [
            self._output(*rollout, reward_of(score, task))
            for rollout, score in zip(played, scores, strict=True)
        ]
        return outputs if linked else outputs[0]

    def _task(self, info: Mapping[str, Any]) -> JudgeTask:
        if info.get(TASK_COLUMN):
            return read_stored_task(info[TASK_COLUMN])
        return read_row(info, self._settings.columns)

    async def _play(
        self, task: JudgeTask, view: View, sampling: Mapping[str, Any]
    ) -> tuple[Trajectory, dict[str, float], dict[str, Any]]:
        """Return the rollout of a view, seconds by part, and the versions of the weights that sampled it."""
        session = self._session(task, view)
        timings: dict[str, float] = {}
        versions: dict[str, Any] = {}
        request = uuid4().hex
        while not session.done:
            with simple_timer("generate_sequences", timings):
                completion = await self._generate(session, sampling, request, versions)
            with simple_timer("tool_calls", timings):
                await self._thread.awaited(session.step(completion))
        return session.trajectory, timings, versions

    @staticmethod
    def _output(
        trajectory: Trajectory, timings: Mapping[str, float], versions: Mapping[str, Any], reward: Reward
    ) -> AgentLoopOutput:
        script = Transcript.of(trajectory)
        return AgentLoopOutput(
            prompt_ids=list(script.prompt_ids),
            response_ids=list(script.completion_ids),
            response_mask=list(script.mask),
            response_logprobs=list(script.logprobs) if script.logprobs else None,
            reward_score=reward.total,
            num_turns=len(trajectory.segments) + 1,
            metrics=AgentLoopMetrics(**timings),
            extra_fields={
                "reward_extra_info": reward.metrics,
                "turn_scores": [],
                "tool_rewards": [],
                **versions,
            },
        )

    def _session(self, task: JudgeTask, view: View) -> JudgeSession:
        settings = self._settings
        session = JudgeSession(
            self._judge,
            task,
            view,
            self._thread.sandbox,
            tools=self._thread.tools,
            encoder=self._encoder,
            budget=settings.budget,
            limits=settings.limits,
            seed=settings.dialogue_seed(task, view),
        )
        size, room = len(session.context.ids or ()), self.rollout_config.prompt_length
        if size > room:
            raise ValueError(f"task {task.id!r}: the prompt has {size} tokens, and prompt_length is {room}")
        if session.done:
            detail = session.trajectory.detail
            raise ValueError(f"task {task.id!r}: {detail}: raise response_length, or leave the row out")
        return session

    async def _generate(
        self, session: JudgeSession, sampling: Mapping[str, Any], request: str, versions: dict[str, Any]
    ) -> Completion:
        most = session.remaining_tokens
        stops = {"stop": list(session.prompt.stop), "include_stop_str_in_output": True}
        output = await self.server_manager.generate(
            request_id=request,
            prompt_ids=list(session.context.ids or ()),
            sampling_params={**sampling, "max_tokens": most, **(stops if session.prompt.stop else {})},
        )
        if output.stop_reason in ("abort", "aborted"):
            raise RuntimeError("verl aborted a turn, and partial rollouts are off: nothing can be scored")
        # verl's trainer requires the first and the last version of the weights that sampled a rollout.
        known = output.extra_fields
        versions.setdefault("min_global_steps", known.get("min_global_steps"))
        versions["max_global_steps"] = known.get("max_global_steps")
        ids = tuple(output.token_ids)
        logprobs = tuple(output.log_probs) if output.log_probs else None
        # The session decodes the text of the whole turn from the ids.
        return Completion(text="", finish=self._finish(session, ids, most), token_ids=ids, logprobs=logprobs)

    def _finish(self, session: JudgeSession, ids: tuple[int, ...], most: int) -> Finish:
        """Derive the reason from the ids, since verl only reports that a turn is complete."""
        # A stop string counts only if the last token completed it: an earlier one would have ended the turn.
        text, before = self._encoder.decode(ids), self._encoder.decode(ids[:-1])
        if any(stop in text and stop not in before for stop in session.prompt.stop):
            return Finish.STOP
        ended = bool(ids) and ids[-1] in self._encoder.end_of_turn
        return Finish.LENGTH if len(ids) >= most and not ended else Finish.END


_COUNT = "tirjudge_programs"
_OUTPUT_CHARS = 2000


class PythonTool(BaseTool):
    """The tool `run_python(code)` for verl's `tool_agent`; its budget of programs is per trajectory.

    Name the class in the file at `multi_turn.tool_config_path`, with `config: {type: native}` and any fields
    of `JudgeSettings` next to the type. It gives no reward, since a tool never sees the verdict; `JudgeLoop`
    does.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None) -> None:
        """Validate the settings; raises ValueError for a bad one."""
        super().__init__(config, tool_schema or self.get_openai_tool_schema())
        options = {name: value for name, value in config.items() if name != "type"}
        self._settings = JudgeSettings.model_validate(options)
        self._thread = SandboxThread.shared(self._settings)

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        function = {
            "name": RUN_PYTHON.name,
            "description": RUN_PYTHON.description,
            "parameters": dict(RUN_PYTHON.parameters),
        }
        return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Run a program; raises RuntimeError if the sandbox failed, which is not a program's output."""
        done = kwargs["agent_data"].extra_fields
        number = done[_COUNT] = done.get(_COUNT, 0) + 1
        if number > self._settings.tool_calls:
            spent = f"The budget of {self._settings.tool_calls} programs is spent: this was not run."
            refused = Refused(f"{spent} {GIVE_VERDICT}")
            return ToolResponse(text=output_text(refused, _OUTPUT_CHARS)), 0.0, {}
        marks = replaced_marks(self._settings.environment)
        source = without_look_alikes(str(parameters.get("code", "")), marks)
        program = Program(source=source, seed=self._settings.seed)
        run = run_with_isolated(self._thread.sandbox, program, self._settings.limits)
        execution = await self._thread.awaited(run)
        if execution.status is Status.SANDBOX_FAILED:
            raise RuntimeError(f"the sandbox failed: {execution.detail}")
        # verl encodes it: a control token in it must not end the message.
        shown = quote_control_tokens(with_look_alikes(output_text(execution, _OUTPUT_CHARS), marks))
        return ToolResponse(text=shown), 0.0, {}
