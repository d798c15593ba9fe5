"""What is judged in these examples, and by which judge."""

import json
from pathlib import Path

PAIRS = Path(__file__).parent / "pairs.jsonl"
ROWS = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
SETTINGS = {"judge": "tir-pairwise", "options": {"prompts": "mini", "order": "given"}}
"""`prompts` is the embedded miniature's wording: leave it out for any other model."""
