"""Ends a script with the process that started it, whatever has ended that: nobody else would end its JVM.

Through the same standard input that process says what else is to be done, a line of JSON for each further run.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading

FLAG = "PIPELINE_ENDS_WITH_STDIN"
"""Set in the environment by whoever holds the other end of standard input open as long as it lives."""
_requests: queue.SimpleQueue[list[str]] = queue.SimpleQueue()


def end_with_parent() -> None:
    """From here on the end of standard input ends this process, its JVM and all else in its process group.

    Does nothing where a script was started by hand.
    """
    if os.environ.pop(FLAG, None):
        threading.Thread(target=_read_until_end, name="parent", daemon=True).start()


def next_run(seconds: float) -> list[str] | None:
    """The arguments of the next run; None when nobody has asked for one within so many seconds."""
    try:
        return _requests.get(timeout=seconds)
    except queue.Empty:
        return None


def _read_until_end() -> None:
    waiting = b""
    while read := os.read(sys.stdin.fileno(), 65_536):  # not by the buffer, whose lock would be held at the end
        *lines, waiting = (waiting + read).split(b"\n")
        for line in lines:
            _requests.put(json.loads(line))
    os.killpg(os.getpgrp(), signal.SIGKILL)
