"""`tirjudge sandbox doctor`: the isolation that each sandbox reaches on this machine, and remedies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tirjudge.cli.output import examples
from tirjudge.console_text import printable
from tirjudge_sandbox import Isolation
from tirjudge_sandbox.doctor import LOCAL, Finding, examine
from tirjudge_sandbox.workers.host import Host

UNSOUND = 1

_PROPERTIES = tuple(field.name for field in fields(Isolation) if field.name not in ("placement", "notes"))


@examples("tirjudge sandbox doctor", "tirjudge sandbox doctor || echo not isolated")
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Try every sandbox on this machine and report which isolation properties hold.

    Exit code 0 when the local sandbox isolates programs fully, 1 when it does not.
    """
    machine = Host.read()
    findings = asyncio.run(_findings())
    chosen = next((one for one in findings if one.backend == LOCAL and one.sound), None)
    if as_json:
        print(json.dumps(_record(machine, findings, chosen), indent=2))
        raise typer.Exit(0 if chosen else UNSOUND)
    console = Console(soft_wrap=True)
    console.print(_description(machine), highlight=False)
    console.print(_table(findings))
    for one in findings:
        if one.reason:
            print(f"{' '.join((one.backend, one.placement)).strip()}: {printable(one.reason, limit=1000)}")
    if chosen is not None:
        console.print(f"The local sandbox runs programs in `{chosen.placement}`.")
        return
    console.print("The local sandbox refuses to run programs here. Remedies:")
    for advice in machine.advice():
        console.print(f"- {advice}", highlight=False)
    raise typer.Exit(UNSOUND)


async def _findings() -> list[Finding]:
    return [finding async for finding in examine()]


def _record(machine: Host, findings: Sequence[Finding], chosen: Finding | None) -> dict[str, object]:
    """Return the report as JSON values."""
    return {
        "machine": _description(machine),
        "local": chosen.placement if chosen else None,
        "sandboxes": [
            {
                "sandbox": one.backend,
                "placement": one.placement,
                "isolation": asdict(one.isolation) if one.isolation else None,
                "sound": one.sound,
                "reason": one.reason,
            }
            for one in findings
        ],
        "remedies": [] if chosen else list(machine.advice()),
    }


def _description(machine: Host) -> str:
    user = "root" if machine.uid == 0 else f"uid {machine.uid}"
    parts = [
        f"Linux {machine.kernel} on {machine.architecture}",
        f"{user} with{'' if machine.sys_admin else 'out'} CAP_SYS_ADMIN",
        f"Landlock {machine.landlock}" if machine.landlock else "no Landlock",
    ]
    if machine.filtered:
        parts.append("under a system call filter")
    if machine.gvisor:
        parts.append("in gVisor")
    return ", ".join(parts)


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("sandbox", "placement", *(name.replace("_", " ") for name in _PROPERTIES)):
        table.add_column(column)
    for one in findings:
        table.add_row(
            one.backend,
            one.placement or "-",
            *(_mark(one.isolation, name) for name in _PROPERTIES),
        )
    return table


def _mark(isolation: Isolation | None, name: str) -> str:
    if isolation is None:
        return "-"
    return "yes" if getattr(isolation, name) else "NO"
