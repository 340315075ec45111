"""End several child processes together."""

from __future__ import annotations

import time
from collections.abc import Collection

from pipeline.process.child import POLL, ChildProcess


def end_all(children: Collection[ChildProcess], seconds: float) -> None:
    """Ask all of these processes to end, and wait until they have ended; kill those that still run after `seconds`."""
    for child in children:
        child.retire(seconds)
    for child in children:
        while child.lives:
            child.retire(seconds)
            if child.ended() is not None:
                break
            time.sleep(POLL)
        child.forget()
