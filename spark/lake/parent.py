"""Ends a script with the process that started it, whatever has ended that: nobody else would end its JVM."""

from __future__ import annotations

import os
import signal
import sys
import threading

FLAG = "PIPELINE_ENDS_WITH_STDIN"
"""Set in the environment by whoever holds the other end of standard input open as long as it lives."""


def end_with() -> None:
    """From here on the end of standard input ends this process, its JVM and all else in its process group.

    Does nothing where a script was started by hand.
    """
    if os.environ.pop(FLAG, None):
        threading.Thread(target=_wait, name="parent", daemon=True).start()


def _wait() -> None:
    while os.read(sys.stdin.fileno(), 1):  # not by the buffer, whose lock would be held as the interpreter ends
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)
