"""OpenEnv: the judge's server. `uvicorn --app-dir examples/frameworks openenv_server:app --port 8000`"""

from judged import SETTINGS

from tirjudge_environments.adapters.openenv import judge_app
from tirjudge_environments.adapters.settings import JudgeSettings

app = judge_app(JudgeSettings(**SETTINGS))
