"""SandboxFusion's `/run_jupyter`: run the cells of one request in a notebook of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from tirjudge_sandbox.base import MIB, Program, SandboxUnavailable
from tirjudge_sandbox.http.fusion_messages import (
    CellResult,
    CommandResult,
    CommandStatus,
    RunJupyterRequest,
    RunJupyterResponse,
    RunStatus,
)
from tirjudge_sandbox.notebook.cells import CellRun, CellStatus, NotebookLimits
from tirjudge_sandbox.notebook.notebook import Notebook
from tirjudge_sandbox.server.settings import FieldRefused, ServerSettings, check_program

_GOES_ON = (CellStatus.OK, CellStatus.ERROR)
"""Statuses after which the next cell is run."""
_KILLED = -9
"""Return code of a driver that was stopped: SIGKILL, as a negative number."""


class Notebooks(Protocol):
    """An object that opens notebooks, such as the `jupyter` sandbox."""

    def notebook(
        self, *, files: Mapping[str, bytes], fetch: tuple[str, ...], limits: NotebookLimits, client: str
    ) -> Notebook: ...


async def run_cells(
    notebooks: Notebooks, request: RunJupyterRequest, settings: ServerSettings, client: str
) -> RunJupyterResponse:
    """Run the cells in order until a limit, or until the kernel dies. Exceptions do not stop the others.

    Raises FieldRefused for values beyond the server's settings.
    """
    limits = _limits(request, settings)
    ran: list[CellRun] = []
    try:
        async with notebooks.notebook(
            files=request.files, fetch=request.fetch_files, limits=limits, client=client
        ) as notebook:
            for cell in request.cells:
                ran.append(await notebook.run(cell))
                if ran[-1].status not in _GOES_ON:
                    break
            ended = await notebook.close()
    except SandboxUnavailable as error:
        return RunJupyterResponse.failed(str(error))
    return _response(ran, ended.files)


def _limits(request: RunJupyterRequest, settings: ServerSettings) -> NotebookLimits:
    most = settings.most
    seconds, memory = request.total_timeout, request.memory_limit_MB * MIB
    if "total_timeout" not in request.model_fields_set:
        # A default above the operator's limit is no mistake of the caller.
        seconds = min(seconds, most.wall_seconds)
    if seconds > most.wall_seconds:
        raise FieldRefused(f"is {seconds:g}, at most {most.wall_seconds:g} is allowed", "total_timeout")
    if memory > most.memory_bytes:
        raise FieldRefused(f"at most {most.memory_bytes // MIB} is allowed", "memory_limit_MB")
    for number, cell in enumerate(request.cells):
        if (size := len(cell.encode())) > settings.source_bytes:
            text = f"has {size} bytes, at most {settings.source_bytes} are accepted"
            raise FieldRefused(text, "cells", number)
    inputs = Program(source="", files=request.files, fetch=request.fetch_files)
    check_program(
        inputs, replace(settings.defaults, disk_bytes=most.disk_bytes), settings, {"fetch": "fetch_files"}
    )
    return NotebookLimits(
        cell_seconds=min(request.cell_timeout or seconds, seconds),
        idle_seconds=seconds,
        total_seconds=seconds,
        cpu_seconds=seconds,
        memory_bytes=memory if memory > 0 else min(NotebookLimits().memory_bytes, most.memory_bytes),
        output_bytes=settings.defaults.output_bytes,
        disk_bytes=most.disk_bytes,
    )


def _response(ran: list[CellRun], files: Mapping[str, bytes]) -> RunJupyterResponse:
    stopped = ran[-1] if ran and ran[-1].status not in _GOES_ON else None
    if stopped is not None and stopped.status is CellStatus.SANDBOX_FAILED:
        return RunJupyterResponse.failed(stopped.detail)
    late = stopped is not None and stopped.status in (CellStatus.TIME_LIMIT, CellStatus.CLOSED)
    return RunJupyterResponse(
        status=RunStatus.SUCCESS if stopped is None else RunStatus.FAILED,
        message="" if stopped is None else stopped.detail,
        driver=CommandResult(
            status=CommandStatus.TIME_LIMIT if late else CommandStatus.FINISHED,
            execution_time=sum(cell.wall_seconds for cell in ran),
            return_code=None if late else 0 if stopped is None else _KILLED,
            stdout="",
            stderr="",
        ),
        cells=[_cell(cell) for cell in ran],
        files=dict(files),
    )


def _cell(cell: CellRun) -> CellResult:
    error: list[dict[str, Any]] = []
    if cell.error is not None:
        exception = {"ename": cell.error.name, "evalue": cell.error.value}
        error = [{**exception, "traceback": list(cell.error.traceback)}]
    return CellResult(
        stdout=cell.stdout,
        stderr=cell.stderr,
        display=[dict(bundle) for bundle in cell.displays],
        error=error,
    )
