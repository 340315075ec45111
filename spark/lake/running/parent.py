"""Ends a script when the process that started it ends for any reason: otherwise its JVM would keep running.

The parent also requests further runs through the script's standard input, with a line of JSON for each run.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

FLAG = "PIPELINE_ENDS_WITH_STDIN"
"""The variable that a parent process sets if it keeps the other end of standard input open while it lives."""
REST_SECONDS = 3.0
"""Seconds that the JVM may outlive SIGTERM, which it gets, too: its hooks end the Spark application."""
_requests: queue.SimpleQueue[list[str]] = queue.SimpleQueue()


def end_with_parent() -> None:
    """Let the end of standard input, and SIGTERM, end this process, its JVM and all other processes of its group.

    This process ends last, so that the end of its parent ends the group at any time. Does nothing if a user started
    the script. Call it in the main thread.
    """
    if os.environ.pop(FLAG, None):
        signal.signal(signal.SIGTERM, _end_last)
        threading.Thread(target=_read_until_end, name="parent", daemon=True).start()


def next_run(seconds: float) -> list[str] | None:
    """Return the arguments of the next run; None if none is requested within `seconds`."""
    try:
        return _requests.get(timeout=seconds)
    except queue.Empty:
        return None


def _read_until_end() -> None:
    waiting = b""
    while read := os.read(
        sys.stdin.fileno(), 65_536
    ):  # not through the buffer, whose lock this thread would still hold at the end
        *lines, waiting = (waiting + read).split(b"\n")
        for line in lines:
            _requests.put(json.loads(line))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_last(_signal: int, _frame: FrameType | None) -> None:
    deadline = time.monotonic() + REST_SECONDS
    with suppress(ChildProcessError):  # no child is left
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
    os.killpg(os.getpgrp(), signal.SIGKILL)
