"""`tirjudge formats`: the judges there are, what they see and answer, and where they come from."""

from __future__ import annotations

from typing import Annotated

import typer

from tirjudge.console_text import printable
from tirjudge_environments.catalog import environment_names, environment_options, judge_cards, judge_table

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
