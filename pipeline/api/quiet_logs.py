"""What clients without a token cause again and again is logged once a minute."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

logger = logging.getLogger(__name__)

_SAY_EVERY = 60.0


class RarelySaid:
    """Says when a sentence is due, and how often it was not said before."""

    def __init__(self) -> None:
        self._said_at = float("-inf")
        self._unsaid = 0

    def suffix(self) -> str | None:
        """Return what to add to the sentence, or None if it must not be said now."""
        if time.monotonic() - self._said_at < _SAY_EVERY:
            self._unsaid += 1
            return None
        more = f", and {self._unsaid} more since the last such line" if self._unsaid else ""
        self._said_at, self._unsaid = time.monotonic(), 0
        return more


class QuietSockets:
    """An asyncio exception handler that logs errors of sockets once a minute, and everything else as it comes."""

    def __init__(self) -> None:
        self._said = RarelySaid()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For `set_exception_handler`."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            loop.default_exception_handler(context)
        elif (more := self._said.suffix()) is not None:
            logger.error("%s: %s%s", context.get("message"), error, more, extra={"action": "api.socket_error"})


class QuietRequests(logging.Filter):
    """A filter of uvicorn's logger: each warning about requests once a minute, and no error that `problems` logs."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, RarelySaid] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the record is logged. uvicorn's warnings have no arguments, so there are few."""
        if record.exc_info:
            return False
        if record.levelno == logging.WARNING:
            more = self._said.setdefault(str(record.msg), RarelySaid()).suffix()
            if more is None:
                return False
            record.msg = f"{str(record.msg).rstrip('.')}{more}"
        return True
