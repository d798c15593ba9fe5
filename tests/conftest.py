"""Start every test with a terminal's signal handlers and without a GPU, whose rounding no test expects."""

import os
import signal

import pytest

os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A shell starts a background job with some signals ignored, and child processes inherit that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with a slow test first: one that started last would run alone while a worker idles."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
