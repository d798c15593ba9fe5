"""Settings under which a paper's recipe is one small batch an epoch, of answers of a few tokens."""

ONE_BATCH = (
    "rl.groups=2",
    "rl.samples=2",
    "rl.optimizer_steps=1",
    "rl.micro_batch=2",
    "rl.max_tokens=8",
    "data.max_prompt_tokens=8000",
)
