"""Copies to the log the lines that children write to standard error.

Libraries such as gRPC, Python's own warnings and crashing programs write there. The output of a process stays in the
pipe when it dies. If this process dies, its children end soon after, and what they write is lost.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

_ROOM = 1_000_000
"""Bytes that fit into the pipe while this process is frozen. If the pipe is full, writers wait."""
_LONGEST = 1_000_000
"""The most bytes of a line; a longer line is passed on in pieces."""
_DRAIN_SECONDS = 2.0
"""Seconds to wait for another line at the end: a process that has not ended may hold the pipe open."""


class ChildErrors:
    """The pipe of children's standard error, a context manager. Use `listening` after the fork: it begins a thread."""

    def __init__(self, show: Callable[[str], None]) -> None:
        """`show` is called with each line, in the thread."""
        self._show = show
        self._lines = 0
        self._taken = False
        self._read, self._write = os.pipe()
        with suppress(OSError):  # a lower limit of this machine
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _ROOM)
        self._thread = threading.Thread(target=self._pass_on, name="errors of children", daemon=True)

    def __enter__(self) -> ChildErrors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Pass on the remaining lines of ended children."""
        if self._taken:
            return
        os.close(self._write)
        before = -1
        while self._thread.is_alive() and before != self._lines:
            before = self._lines
            self._thread.join(_DRAIN_SECONDS)

    def fileno(self) -> int:
        """Return the end that children write to."""
        return self._write

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Pass lines on, from the beginning of this block until the children have ended."""
        self._thread.start()
        yield

    def redirect_stderr(self) -> None:
        """Call this in a child: its standard error goes to the pipe from now on."""
        self._taken = True  # a forked child leaves the block of its parent by SystemExit, with its own status
        os.dup2(self._write, 2)
        for each in (self._read, self._write):
            os.close(each)

    def _pass_on(self) -> None:
        rest = b""
        while received := os.read(self._read, 65536):
            *lines, rest = (rest + received).split(b"\n")
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._pass(line)
        self._pass(rest)

    def _pass(self, line: bytes) -> None:
        self._lines += 1
        if line.strip():
            with suppress(OSError, ValueError):  # standard error is gone; children must not wait for it
                self._show(line.decode("utf-8", "backslashreplace"))
