"""Adapters that put the judge environments into RL frameworks, one thin file each, over `JudgeSession`."""
