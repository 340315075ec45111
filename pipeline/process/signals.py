"""What every long-running process needs: a stop that signals ask for, and an end when its parent is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
LEAVE_SECONDS = 5.0
"""So long is a thread waited for whose answer nobody wants any more."""
PULSE_SECONDS = 1.0
"""How often a child process lets its parent hear from it."""


class Stop:
    """Set by SIGTERM (and SIGINT unless ignored). `wait` sleeps, but not past it."""

    def __init__(self, *, ignore_interrupt: bool) -> None:
        """Installs the handlers; only in the main thread. `ignore_interrupt`: Ctrl-C is the parent's business."""
        self._event = threading.Event()
        self._callbacks: list[Callable[[], object]] = []
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignore_interrupt else self._handle)

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep; True as soon as a stop was asked for."""
        return self._event.wait(seconds)

    def then(self, callback: Callable[[], object]) -> None:
        """Call this too when a stop is asked for, from the signal handler; at once when it was already."""
        self._callbacks.append(callback)
        if self:
            callback()

    def _handle(self, _signal: int, _frame: object) -> None:
        self._event.set()
        for callback in self._callbacks:
            callback()


def in_loop(callback: Callable[[], object]) -> Callable[[], None]:
    """Calls it in the event loop that runs now, from anywhere; once that is closed there is nothing left to call."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback)

    return call


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As asyncio.to_thread, but when it is cancelled the thread comes to its end first.

    Its connections are closed then, or used by somebody else, who must not find them inside of a transaction of its.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        done, _ = await asyncio.wait({call}, timeout=LEAVE_SECONDS)
        for ended in done:
            ended.exception()  # or asyncio says that nobody has asked for it
        raise


def read_settings() -> str | None:
    """The first line of standard input, unbuffered: the rest of it is for `live_with_parent`.

    None when the parent is gone before it has said it.
    """
    line = bytearray()
    while (byte := os.read(0, 1)) != b"\n":
        if not byte:
            return None
        line += byte
    return line.decode()


def live_with_parent() -> None:
    """Standard input is a socket to the parent: end this process when it ends, and let the parent hear from us.

    A byte now, and then every PULSE_SECONDS, says that this process is not frozen.
    """
    line = socket.socket(fileno=os.dup(0))
    line.settimeout(PULSE_SECONDS)

    def watch() -> None:
        while _hears(line):
            continue
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _hears(line: socket.socket) -> bool:
    """Let the parent hear from us, then say whether it is still there, after a second at most."""
    try:
        line.send(b".", socket.MSG_DONTWAIT)
    except BlockingIOError:  # a parent that is frozen itself does not read
        pass
    except OSError:
        return False
    try:
        return bool(line.recv(1024))
    except TimeoutError:
        return True
    except OSError:
        return False
