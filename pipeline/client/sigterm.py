"""SIGTERM while a program works off a queue: the loop ends behind the item in hand, and then the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


class SigtermHandler:
    """Calls `stop` at the first SIGTERM; the next one ends the program at once.

    Only in the main thread, and only where the program has no handler of its own. `restore` puts the default back, and
    then ends the program as SIGTERM would have done.
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
        """The queue is closed."""
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
