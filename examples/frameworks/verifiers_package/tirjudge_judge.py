"""The judge as an environment package: `vf-eval tirjudge-judge`."""

from tirjudge_environments.adapters.verifiers import JudgeTaskset

__all__ = ["JudgeTaskset"]
