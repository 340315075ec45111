"""A server's sign of life in a file, for `pipeline health` if the server answers no HTTP.

The file's modification time is the sign of life; its text is the server's pid.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)

EVERY_SECONDS = 2.0
STALE_SECONDS = 15.0
"""Seconds without a sign of life after which a server counts as hanging or ended."""


def file(data_dir: Path, role: str) -> Path:
    """Return the file in which the server of this role leaves its sign."""
    return data_dir / "alive" / role


class HeartbeatFile:
    """The file of a server.

    A call leaves a sign of life, at most every EVERY_SECONDS; if this fails, the server continues.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0
        self._failed = False

    def __call__(self) -> None:
        """Leave a sign of life if the last one is old enough."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_SECONDS
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(f"{os.getpid()}\n")
        except OSError as error:
            if not self._failed:
                why = f"{self._path} cannot be written: {error.strerror}; `pipeline health` will not find this server"
                logger.warning("%s", why, extra={"action": "serve.no_heartbeat"})
            self._failed = True

    def end(self) -> None:
        """Remove the file, since the server ends."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return


def age(path: Path) -> float | None:
    """Return the seconds since the last sign; None if there is none."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None
