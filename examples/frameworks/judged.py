"""The rows and the judge of these examples."""

import json
from pathlib import Path

PAIRS = Path(__file__).parent / "pairs.jsonl"
ROWS = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
SETTINGS = {"judge": "tir-pairwise", "options": {"prompts": "mini", "order": "given"}}
"""`prompts` selects the miniature's prompts; leave it out for any other model."""
