"""Stop a long-running process by signal, and end it when its parent has ended."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
LEAVE_SECONDS = 5.0
"""Seconds to wait for a thread whose result is no longer needed."""
PULSE_SECONDS = 1.0
"""Seconds between two signs of life that a child process sends its parent."""


class StopSignal:
    """A flag that SIGTERM sets (and SIGINT unless ignored). `wait` sleeps, but no longer than until it is set.

    It uses no lock: the handler may interrupt anything, also `wait`, or itself.
    """

    def __init__(self, *, ignore_interrupt: bool) -> None:
        """Install the handlers; only in the main thread. `ignore_interrupt`: the parent handles Ctrl-C."""
        self._set = False
        self._readable, self._write = os.pipe()
        self._callbacks: list[Callable[[], object]] = []
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignore_interrupt else self._handle)

    def __bool__(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        """Sleep; return True as soon as the signal is set."""
        if not self._set:
            poller = select.poll()
            poller.register(self._readable, select.POLLIN)
            poller.poll(max(0.0, seconds) * 1000)
        return self._set

    def then(self, callback: Callable[[], object]) -> None:
        """Let the signal handler call this function when it sets the signal; call it now if the signal is set."""
        self._callbacks.append(callback)
        if self:
            callback()

    def _handle(self, _signal: int, _frame: object) -> None:
        if self._set:
            return
        self._set = True
        os.write(self._write, b".")  # the byte is never read, so that a later `wait` finds it, too
        for callback in self._callbacks:
            callback()


def in_loop(callback: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls `callback` in the current event loop, from any thread, until the loop is closed."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback)

    return call


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function as asyncio.to_thread does, but let a cancellation wait until the thread has ended.

    After the call, the function's connections are closed or reused, so none may still be inside of a transaction.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        done, _ = await asyncio.wait({call}, timeout=LEAVE_SECONDS)
        for ended in done:
            ended.exception()  # or asyncio warns that it was never retrieved
        raise


def read_settings() -> str | None:
    """Return the first line of standard input, unbuffered: the rest is for `live_with_parent`.

    Returns None if the parent ends before it has sent the line.
    """
    line = bytearray()
    while (byte := os.read(0, 1)) != b"\n":
        if not byte:
            return None
        line += byte
    return line.decode()


def read_settings_and_socket() -> tuple[str | None, socket.socket | None]:
    """Return the line of `read_settings`, and the socket that came with it, if any."""
    with socket.socket(fileno=os.dup(0)) as line:
        first, found, _, _ = socket.recv_fds(line, 1, 1)
    attached = socket.socket(fileno=found[0]) if found else None
    rest = read_settings() if first else None
    return (first.decode() + rest if rest is not None else None), attached


def live_with_parent() -> None:
    """End this process when its parent ends, and send the parent signs of life over standard input, which is a socket.

    One byte now, and one every PULSE_SECONDS, shows that this process is not frozen.
    """
    line = socket.socket(fileno=os.dup(0))
    line.settimeout(PULSE_SECONDS)

    def watch() -> None:
        try:
            while _pulse(line):
                continue
        finally:  # also after an unexpected error: without this thread nothing would end the process
            os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _pulse(line: socket.socket) -> bool:
    """Send the parent a sign of life, then return whether it still runs, after a second at most."""
    try:
        line.send(b".", socket.MSG_DONTWAIT)
    except BlockingIOError:  # a frozen parent does not read
        pass
    except OSError:
        return False
    try:
        return bool(line.recv(1024))
    except TimeoutError:
        return True
    except OSError:
        return False
