"""Settings of every test: signals as in a terminal, no GPU, and no deadline for hypothesis."""

import os
import signal
from contextlib import suppress

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
