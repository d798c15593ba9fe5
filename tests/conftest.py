"""Settings of every test: signals as in a terminal, no GPU, no deadline for hypothesis, and slow folders."""

import gc
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tirjudge_sandbox.local import LocalSandbox

HERE = Path(__file__).parent
SLOW = (HERE / "benchmarks", HERE / "research")
"""Folders whose tests are all marked `slow`; they measure what the tests of the packages prove."""
HOMES = (
    r"torch|trl|transformers|peft|accelerate|tirjudge_training|examples\.miniature"
    r"|tests\.(model_families|tirjudge\.tiny_models)",
    r"nltk|statsmodels|sklearn|ppi_py|krippendorff|choix|tests\.ifeval_registry",
    r"schemathesis|mcp|sandbox_fusion|ray|datasets|tests\.(fuzzing|environments\.tools\.sdk_server|tirjudge\.mcp)",
)
"""Modules that take seconds to import, or whose model does, by the number of the process that runs the files.

Each of the three members is for one process; the others do not even collect its files. So a module is
imported once, and not in every process. Files that match several members belong to the first one. Files that
match none, and all files where slow tests run too, run wherever a process is free.
"""
_IMPORTS = [re.compile(rf"^(?:from|import) (?:{modules})\b", re.MULTILINE) for modules in HOMES]
LONG = [
    "tirjudge/report/test_pages",
    "tirjudge/report/test_labelling",
    "tirjudge/cli/test_compile_command",
    "tirjudge/compilation/test_admission",
    "sandbox/notebook/test_notebook",
    "environments/test_files",
    "sandbox/test_prepared",
    "training/rl/test_trl_rollout",
    "tirjudge/cli/test_files",
    "sandbox/guest/test_escape_prepared",
    "tirjudge/mcp/test_mcp",
    "sandbox/guest/test_escape_resources",
    "sandbox/containers/test_docker",
    "tirjudge/cli/test_missing_extras",
    "training/rl/test_off_policy",
    "tirjudge/providers/test_commands",
    "tirjudge/cli/test_evidence",
    "tirjudge/generation/test_openvino",
]
"""The files that take longest, the longest first, by the durations that `pytest --junit-xml` writes.

They run first, so that all processes end at about the same time.
"""

# Collections of garbage while thousands of tests are made would find none.
gc.disable()
# A GPU rounds differently from what the tests expect.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A shell makes a background job ignore some signals, and child processes would inherit that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)

with suppress(ImportError):  # the environments of the RL frameworks have no hypothesis
    from hypothesis import settings

    # Its default deadline of 200 ms per example fails on a busy machine.
    settings.register_profile("no-deadline", deadline=None)
    settings.load_profile("no-deadline")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow folders where slow tests are not run: importing them takes seconds in every process."""
    if "not slow" not in config.option.markexpr:
        return None
    return True if collection_path in SLOW or _runs_elsewhere(collection_path, config) else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of `pytest-xdist` whether it may leave files to the others."""
    node.workerinput["homes"] = node.config.option.dist == "loadfile"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Divide files, which the processes have not all collected."""
    if config.option.dist != "loadfile":
        return None
    from tests.processes import Scheduling  # the environments of the RL frameworks have no pytest-xdist

    return Scheduling(config, log)


def _runs_elsewhere(path: Path, config: pytest.Config) -> bool:
    """Return True for a file or folder that is at home in another process than this one."""
    this = getattr(config, "workerinput", {})
    if not this.get("homes") or (home := _home(path)) is None:
        return False
    number, count = int(this["workerid"].removeprefix("gw")), this["workercount"]
    # A process that replaces a crashed one may run everything.
    return number < count and home % count != number


def _home(path: Path) -> int | None:
    if path == HERE / "training":
        return 0
    if not (path.name.startswith("test_") and path.suffix == ".py"):
        return None
    source = path.read_text()
    return next((number for number, imports in enumerate(_IMPORTS) if imports.search(source)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders, and mix files that compute with files that wait, the longest first.

    Files of training compute and files of the sandbox wait: the files of each folder are spread over the run.
    """
    files: dict[Path, dict[Path, int]] = {}
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in SLOW):
            item.add_marker("slow")
        known = files.setdefault(_folder(item), {})
        known.setdefault(item.path, len(known))

    long = {HERE / f"{name}.py": place for place, name in enumerate(LONG)}

    def place(item: pytest.Item) -> tuple[int, float]:
        known = files[_folder(item)]
        return long.get(item.path, len(long)), known[item.path] / len(known)

    items.sort(key=place)


def _folder(item: pytest.Item) -> Path:
    """Return the folder in `tests` that the test is in, such as `tests/training`."""
    return HERE / item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else item.path.parent


def pytest_collection_finish() -> None:
    """Let later collections of garbage pass over everything that collecting tests has made."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def opening_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """Open sandboxes without numpy and sympy, in a quarter of the time, except in tests of the sandbox."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.path.is_relative_to(HERE / "sandbox"):
            patch.setitem(LocalSandbox.__init__.__kwdefaults__, "preload", ())
        yield
