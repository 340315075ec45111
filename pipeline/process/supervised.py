"""Runs tasks and threads that a process needs: after an unexpected error, they are logged and started again.

Otherwise the process would look healthy, but a part of it would be missing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
"""Seconds after an unexpected error until a task or thread starts again."""


def start_task(name: str, act: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
    """Start a task that runs `act` until it returns or is cancelled, again after each unexpected error."""

    async def run() -> None:
        while True:
            try:
                await act()
                return
            except Exception:
                _log_failure(name)
            await asyncio.sleep(RESTART_SECONDS)

    return asyncio.create_task(run(), name=name)


def start_thread(name: str, act: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread that runs `act` until it returns, again after each unexpected error."""
    thread = threading.Thread(target=run, args=(name, act), name=name, daemon=True)
    thread.start()
    return thread


def run(name: str, act: Callable[[], None]) -> None:
    """Run `act` until it returns, again after each unexpected error."""
    while True:
        try:
            return act()
        except Exception:
            _log_failure(name)
        time.sleep(RESTART_SECONDS)


def _log_failure(name: str) -> None:
    logger.exception("unexpected error in %s, which starts again", name, extra={"action": "task.failed"})
