"""Handles SIGTERM while a program processes a queue: the loop ends after the current item, then the program ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


class SigtermHandler:
    """A handler that calls `stop` at the first SIGTERM; a second SIGTERM ends the program at once.

    The handler is set only in the main thread, and only if the program has none. `restore` removes the handler, and
    ends the program by SIGTERM if the signal has arrived.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._has_come = False
        self._is_ours = (
            threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if self._is_ours:
            signal.signal(signal.SIGTERM, self._came)

    def restore(self) -> None:
        """Restore the default handler, when the queue is closed; end the program if SIGTERM has arrived."""
        if (
            self._is_ours
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._came
        ):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._is_ours = False
        if self._has_come:
            signal.raise_signal(signal.SIGTERM)

    def _came(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._has_come = True
        self._stop()
