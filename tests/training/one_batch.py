"""Settings that reduce a paper's recipe to one small batch per epoch, with answers of a few tokens."""

ONE_BATCH = (
    "rl.groups=2",
    "rl.samples=2",
    "rl.optimizer_steps=1",
    "rl.micro_batch=2",
    "rl.max_tokens=8",
    "rl.generator=transformers",
    "data.max_prompt_tokens=8000",
)
