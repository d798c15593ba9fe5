"""The judge under a name of its own: `vf-eval tirjudge-judge`."""

from tirjudge_environments.adapters.verifiers import JudgeTaskset

__all__ = ["JudgeTaskset"]
