"""LLM judges as environments: tasks, prompts, readings and rewards, without a model and without torch.

The classes of the papers' formats are exported for convenience. A new format needs no line here: it is found
by its entry point (see `open_environment`).
"""

from tirjudge_environments.base import Environment, JudgeCard, JudgeFormat, ToolEnvironment
from tirjudge_environments.formats.j1 import J1PaS, J1PaV, J1PaVS, J1PoS
from tirjudge_environments.formats.judgelrm import JudgeLrmPair, JudgeLrmSingle
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.formats.rm_r1 import RmR1
from tirjudge_environments.formats.tir_comparison import TirListwise, TirPairwise
from tirjudge_environments.formats.tir_pointwise import TirPointwise
from tirjudge_environments.registry import environment_names, open_environment
from tirjudge_environments.session import JudgeSession, Transcript
from tirjudge_environments.tasks import Columns, RowError, read_task
from tirjudge_environments.tokenization import ChatEncoder, Encoder
from tirjudge_environments.tools.code_tests import Case, CaseResult, run_tests
from tirjudge_environments.types import (
    Budget,
    By,
    Call,
    Completion,
    Context,
    Continue,
    Criterion,
    Episode,
    Evidence,
    Finish,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Question,
    Reading,
    Refused,
    Response,
    Reward,
    RunCode,
    Score,
    Segment,
    StopReason,
    ToolCall,
    ToolSpec,
    Trajectory,
    Unscored,
    Usage,
    Verdict,
    View,
    derive_seed,
)

__all__ = [
    "Budget",
    "By",
    "Call",
    "Case",
    "CaseResult",
    "ChatEncoder",
    "Columns",
    "Completion",
    "Context",
    "Continue",
    "Criterion",
    "Encoder",
    "Environment",
    "Episode",
    "Evidence",
    "Finish",
    "J1PaS",
    "J1PaV",
    "J1PaVS",
    "J1PoS",
    "JudgeCard",
    "JudgeFormat",
    "JudgeLrmPair",
    "JudgeLrmSingle",
    "JudgeSession",
    "JudgeTask",
    "Malformed",
    "Message",
    "Prompt",
    "Question",
    "Rationale",
    "Reading",
    "Refused",
    "Response",
    "Reward",
    "RmR1",
    "RowError",
    "RunCode",
    "Score",
    "Segment",
    "StopReason",
    "TirListwise",
    "TirPairwise",
    "TirPointwise",
    "ToolCall",
    "ToolEnvironment",
    "ToolSpec",
    "Trajectory",
    "Transcript",
    "Unscored",
    "Usage",
    "Verdict",
    "View",
    "derive_seed",
    "environment_names",
    "open_environment",
    "read_task",
    "run_tests",
]
