"""Collects processes that this one inherits: PID 1 of a container becomes the parent of every process without one.

Such a process stays as a zombie until its new parent collects its exit status.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

_lock = threading.Lock()
_waited = 0


@contextmanager
def own_child() -> Iterator[None]:
    """Keep the exit status of a child that any thread starts and waits for inside of this block."""
    global _waited
    with _lock:
        _waited += 1
    try:
        yield
    finally:
        with _lock:
            _waited -= 1


def collect(own: Collection[int]) -> None:
    """Collect inherited processes that have ended. `own`: children whose status another part of this process collects.

    Does nothing while `own_child` is in use; call it regularly.
    """
    with _lock, suppress(ChildProcessError):  # no child at all
        while not _waited and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
