"""Builds the frames for a session's client: one for each transaction, as wal2json writes it. Has state, does no IO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from pipeline.errors import DecodeError
from pipeline.wal import lsn, pgoutput
from pipeline.wal.messages import (
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    RelationMessage,
    TruncateMessage,
    UpdateMessage,
)
from pipeline.wal.wal2json import NEW_ROWS, ChangeWriter

FRAME_BYTES = 16 << 20
"""A transaction with more text than this is sent in several frames. wal2json itself fails at 1 GB."""
_GATHERED = 1 << 18
"""Bytes of changes that are kept as separate objects before they are joined: small objects take more memory."""

_u32 = Struct(">I").unpack_from
_BEGIN, _COMMIT = b"BC"


class TransactionFrame(NamedTuple):
    """A frame of a transaction. `end`: the end of the transaction; None if more frames of it follow."""

    text: bytes
    end: int | None


class FrameBuilder:
    """Builds frames from messages of pgoutput in their order, and keeps them until they are taken."""

    def __init__(
        self,
        position: int,
        begun: Callable[[int], None] = lambda _: None,
        ended: Callable[[int, bool], None] = lambda _end, _frame: None,
    ) -> None:
        """`position`: where the stream starts.

        `begun` is called with the LSN of a transaction's commit; `ended` with its end, and True if it has a frame.
        """
        self._nextlsn = _written(position)
        self._begun, self._ended = begun, ended
        self._writers: dict[int, ChangeWriter] = {}
        self._ignored: set[int] = set()
        self._open = False
        self._ready: list[TransactionFrame] = []
        self._changes: list[bytes] = []
        self._whole = bytearray()
        self._truncated: list[bytes] = []
        self._size = 0

    def take_frames(self) -> list[TransactionFrame]:
        """Return the complete frames in their order, and forget them."""
        ready, self._ready = self._ready, []
        return ready

    def learn(self, relation: RelationMessage, types: Sequence[str]) -> None:
        """Write rows of this relation by this description from now on.

        `types`: of its columns, as format_type names them.
        """
        self._writers[relation.oid] = ChangeWriter(relation, types)

    def ignore(self, oid: int) -> None:
        """From now on, leave out the changes of this relation."""
        self._ignored.add(oid)

    def feed(self, data: bytes, at: int) -> None:
        """Add the message in `data` from `at` on, which is not a Relation. Raises DecodeError."""
        kind = data[at]
        if kind in NEW_ROWS and data[at + 5 : at + 6] == b"N":
            writer = self._writers.get(_u32(data, at + 1)[0])
            if writer is not None and (change := writer.new_row[kind](data, at + 6)) is not None:
                self._add(change)
                return
        if kind == _BEGIN:
            self._begin(pgoutput.decode_begin(data, at + 1))
        elif kind == _COMMIT:
            self._commit(pgoutput.decode_commit(data, at + 1))
        else:
            self._decode(data, at)

    def _decode(self, data: bytes, at: int) -> None:
        message = pgoutput.decode(data, at)
        if isinstance(message, InsertMessage | UpdateMessage | DeleteMessage):
            if message.relation not in self._ignored:
                self._add(self._writer(message.relation).change(message))
        elif isinstance(message, TruncateMessage):
            for oid in message.relations:
                if oid not in self._ignored:
                    self._truncate(self._writer(oid).named)
        elif isinstance(message, RelationMessage):
            raise DecodeError(f"relation {message.oid} was fed without `learn`")

    def _begin(self, begin: BeginMessage) -> None:
        if self._open:
            raise DecodeError("a transaction begins inside of another")
        self._open = True
        self._begun(begin.final_lsn)

    def _commit(self, commit: CommitMessage) -> None:
        if not self._open:
            raise DecodeError("a transaction ends that has not begun")
        self._open = False
        has_frame = self._size > 0
        if has_frame:
            self._nextlsn = _written(commit.end_lsn)
            self._ready.append(TransactionFrame(self._text(), commit.end_lsn))
            self._forget()
        self._ended(commit.end_lsn, has_frame)

    def _add(self, change: bytes) -> None:
        if not self._open:
            raise DecodeError("a change outside of a transaction")
        if self._size > FRAME_BYTES - len(change) and self._size:
            self._ready.append(TransactionFrame(self._text(), None))
            self._forget()
        self._size += len(change) + 1
        self._changes.append(change)
        if self._size - len(self._whole) > _GATHERED:
            self._gather()

    def _truncate(self, named: bytes) -> None:
        self._size += len(named) + 1
        self._truncated.append(named)

    def _gather(self) -> None:
        """Join the separate changes to the text, which grows in place, so that it is never copied as a whole."""
        if self._changes:
            self._whole += b",".join(self._changes)
            self._whole += b","
            self._changes = []

    def _text(self) -> bytes:
        truncated = b',"truncated":[' + b",".join(self._truncated) + b"]" if self._truncated else b""
        if not self._whole:
            return b'{"nextlsn":"%b","change":[%b]%b}' % (self._nextlsn, b",".join(self._changes), truncated)
        self._gather()
        del self._whole[-1:]
        return b"".join((b'{"nextlsn":"', self._nextlsn, b'","change":[', self._whole, b"]", truncated, b"}"))

    def _forget(self) -> None:
        self._changes, self._truncated = [], []
        self._whole = bytearray()
        self._size = 0

    def _writer(self, oid: int) -> ChangeWriter:
        try:
            return self._writers[oid]
        except KeyError:
            raise DecodeError(f"a change of relation {oid}, which the source has not described") from None


def _written(position: int) -> bytes:
    return lsn.show(position).encode()
