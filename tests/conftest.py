"""What every test begins with: signals as from a terminal, and no GPU, which rounds as no test expects."""

import os
import signal

import pytest

os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A shell has a suite in the background ignore some, and hands that on.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a slow test first: with two workers, one that began last would run on alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
