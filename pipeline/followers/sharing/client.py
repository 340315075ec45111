"""An applier's side of what is read for several of them."""

from __future__ import annotations

import logging
import pickle
import socket
from collections.abc import Generator
from multiprocessing.connection import Connection as Line
from typing import Any

from pipeline.followers.applying.ahead import ReadAheadError
from pipeline.followers.applying.passes import Pass
from pipeline.followers.applying.reading import End, Part
from pipeline.followers.applying.upcoming import Alone, Nothing, Source
from pipeline.followers.sharing import messages
from pipeline.followers.sharing.messages import Ask, Broken, Unknown, Working

logger = logging.getLogger(__name__)

SILENT_SECONDS = 10.0
"""Without a sign of life: then the applier reads alone for good."""


class SharedLog:
    """Over one socket, from one thread. Where it breaks, or nobody answers, everything is read alone."""

    def __init__(self, line: socket.socket) -> None:
        """`line`: from `SharedReading.attach`; it belongs to this from now on."""
        self._line: Line | None = Line(line.detach())
        self._source: Source | None = None
        self._key = b""
        self._unread = False  # parts of the pass that was taken last

    def begin(self, source: Source, seq: int) -> None:
        """As `upcoming.Shared`."""
        self._source = messages.as_read(source, seq)
        self._key = messages.key_of(self._source)

    def close(self) -> None:
        """Everything is read alone from now on."""
        if self._line is not None:
            self._line.close()
        self._line, self._unread = None, False

    def next(self, after: int, *, continues: bool) -> Pass | Nothing | Alone:
        """As `upcoming.Shared`."""
        try:
            for _ in self._rest():
                pass
            answer = self._ask(Ask(self._key, after, continues))
        except (ReadAheadError, EOFError, OSError, pickle.PickleError) as error:
            self._give_up(error)
            return Alone()
        self._unread = isinstance(answer, Pass)
        return answer

    def parts(self) -> Generator[Part, None, None]:
        """As `upcoming.Shared`."""
        try:
            for part in self._rest():
                if isinstance(part, Broken):
                    raise ReadAheadError
                yield part
        except (EOFError, OSError, pickle.PickleError) as error:
            self._give_up(error)
            raise ReadAheadError from error

    def _ask(self, ask: Ask) -> Pass | Nothing | Alone:
        if self._line is None:
            return Alone()
        self._line.send(ask)
        if isinstance(answer := self._receive(), Unknown):
            self._line.send(self._source)
            answer = self._receive()
        assert isinstance(answer, Pass | Nothing | Alone)  # noqa: S101  nothing else is an answer
        return answer

    def _rest(self) -> Generator[Part | Broken, None, None]:
        while self._unread:
            part = self._receive()
            self._unread = not isinstance(part, End | Broken)
            if not isinstance(part, End):
                yield part

    def _receive(self) -> Any:
        if self._line is None:
            raise EOFError
        while self._line.poll(SILENT_SECONDS):
            if not isinstance(message := self._line.recv(), Working):
                return message
        raise TimeoutError

    def _give_up(self, error: BaseException) -> None:
        if self._line is not None:
            logger.info("reads the log alone: %s", error or type(error).__name__, extra={"action": "follower.alone"})
        self.close()
