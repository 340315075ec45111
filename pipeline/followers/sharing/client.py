"""The applier's side of shared reading: asks over a socket for passes that are read for several appliers."""

from __future__ import annotations

import logging
import pickle
import socket
from collections.abc import Generator
from multiprocessing.connection import Connection as Line
from typing import Any

from pipeline.followers.applying.passes import PlannedPass
from pipeline.followers.applying.read_ahead import ReadAheadError
from pipeline.followers.applying.reading import PassEnd, PassPart
from pipeline.followers.applying.upcoming_passes import LogSelection, NothingNext, ReadAlone
from pipeline.followers.sharing import messages
from pipeline.followers.sharing.messages import BrokenPass, PassRequest, StillReading, UnknownKey

logger = logging.getLogger(__name__)

SILENT_SECONDS = 10.0
"""Seconds without a message after which the applier gives up shared reading and reads alone."""


class SharedLog:
    """Receives passes from one socket, in one thread. If the socket breaks or is silent, the applier reads alone."""

    def __init__(self, line: socket.socket) -> None:
        """`line`: from `SharedReading.open_socket`; this object closes it."""
        self._line: Line | None = Line(line.detach())
        self._source: LogSelection | None = None
        self._key = b""
        self._unread = False  # True if the last pass has parts that were not read

    def begin(self, source: LogSelection, seq: int) -> None:
        """Ask for the events of this selection from now on; see `upcoming_passes.SharedReader.begin`."""
        self._source = messages.shareable(source, seq)
        self._key = messages.key_of(self._source)

    def close(self) -> None:
        """Close the socket, so that the applier reads alone from now on."""
        if self._line is not None:
            self._line.close()
        self._line, self._unread = None, False

    def next(self, after: int, *, continues: bool) -> PlannedPass | NothingNext | ReadAlone:
        """Return the next pass after a seq, or an answer if there is none; see `upcoming_passes.SharedReader.next`."""
        try:
            for _ in self._rest():
                pass
            answer = self._ask(PassRequest(self._key, after, continues))
        except (ReadAheadError, EOFError, OSError, pickle.PickleError) as error:
            self._give_up(error)
            return ReadAlone()
        self._unread = isinstance(answer, PlannedPass)
        return answer

    def parts(self) -> Generator[PassPart, None, None]:
        """Yield the parts of the last pass; see `upcoming_passes.SharedReader.parts`."""
        try:
            for part in self._rest():
                if isinstance(part, BrokenPass):
                    raise ReadAheadError
                yield part
        except (EOFError, OSError, pickle.PickleError) as error:
            self._give_up(error)
            raise ReadAheadError from error

    def _ask(self, ask: PassRequest) -> PlannedPass | NothingNext | ReadAlone:
        if self._line is None:
            return ReadAlone()
        self._line.send(ask)
        if isinstance(answer := self._receive(), UnknownKey):
            self._line.send(self._source)
            answer = self._receive()
        assert isinstance(answer, PlannedPass | NothingNext | ReadAlone)  # noqa: S101  nothing else is an answer
        return answer

    def _rest(self) -> Generator[PassPart | BrokenPass, None, None]:
        while self._unread:
            part = self._receive()
            self._unread = not isinstance(part, PassEnd | BrokenPass)
            if not isinstance(part, PassEnd):
                yield part

    def _receive(self) -> Any:
        if self._line is None:
            raise EOFError
        while self._line.poll(SILENT_SECONDS):
            if not isinstance(message := self._line.recv(), StillReading):
                return message
        raise TimeoutError

    def _give_up(self, error: BaseException) -> None:
        if self._line is not None:
            logger.info("reads the log alone: %s", error or type(error).__name__, extra={"action": "follower.alone"})
        self.close()
