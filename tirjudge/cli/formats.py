"""`tirjudge formats`: the judges there are, what they see and answer, and where they come from."""

from __future__ import annotations

import typer
from tirjudge.console_text import printable
from tirjudge_environments.registry import environment_names
from tirjudge_environments.registry import environment_options
from tirjudge_environments.registry import judge_cards
from tirjudge_environments.registry import judge_table
from typing import Annotated

OURS = "tirjudge_environments."


def formats(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Our own, as docs/judges.md has them.")
    ] = False,
) -> None:
    """The judges that `--format` names, and what they are."""
    if markdown:
        print(judge_table(OURS))
        return
    cards = judge_cards()
    for name in environment_names():
        about = {"options": ", ".join(sorted(environment_options(name)))}
        if name in cards:
            card = cards[name]
            about |= {"sees": card.views, "answers": card.answer, "reward": card.reward, "from": card.source}
        print(printable(name))
        for heading in ("sees", "answers", "reward", "from", "options"):
            if about.get(heading):
                print(f"  {heading:<9}{printable(about[heading].replace('`', ''))}")
