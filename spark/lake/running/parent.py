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

FLAG = "PIPELINE_ENDS_WITH_STDIN"
"""The variable that a parent process sets if it keeps the other end of standard input open while it lives."""
_requests: queue.SimpleQueue[list[str]] = queue.SimpleQueue()


def end_with_parent() -> None:
    """Let the end of standard input end this process, its JVM and all other processes of its group.

    Does nothing if a user started the script.
    """
    if os.environ.pop(FLAG, None):
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
