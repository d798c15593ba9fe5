"""The judge environments inside other people's RL frameworks: one thin file for each, over `JudgeSession`."""
