"""Checks and skips replayed transactions, between the slot's confirmed LSN and our stored position. Pure.

A source that was restored to an earlier state and has written past our position since looks like the known one: its
cluster and timeline are the same. Only the stream shows the difference. The last transaction that we staged must be
replayed with the same commit time, and between it and our position there must be no changes for us.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from pipeline.capture.replication.tagger import ANNOTATION_CLEAR, ANNOTATION_SET
from pipeline.capture.source.timeline import ADOPT
from pipeline.errors import DecodeError, HistoryDivergedError
from pipeline.log.staging.progress import StagedPosition
from pipeline.wal import lsn, pgoutput
from pipeline.wal.markers import OURS
from pipeline.wal.messages import (
    BeginMessage,
    DeleteMessage,
    InsertMessage,
    KeepaliveMessage,
    LogicalMessage,
    RelationMessage,
    TruncateMessage,
    UpdateMessage,
)

_HEADER = pgoutput.XLOG_HEADER
_BEGIN, _COMMIT, _RELATION, _MESSAGE = b"BCRM"
_ROWS = frozenset(b"IUDT")
_NOTHING = frozenset(b"YO")


class _Open(Enum):
    NONE = "no transaction"
    KNOWN = "the transaction is in the log"
    UNDECIDED = "no change for us has arrived yet"


class ReplayCheck:
    """Takes messages until the first new one. Until `verified`, nothing may be stored or confirmed.

    `carried`: transactions of earlier epochs that are in the log, as commit_lsn and commit time in µs since 2000.
    """

    def __init__(
        self,
        staged: StagedPosition,
        from_lsn: int,
        carried: Collection[tuple[int, int]] = (),
        is_own: Callable[[RelationMessage], bool] = lambda _: False,
    ) -> None:
        """`from_lsn`: the slot sends the transactions whose commit record begins there or later.

        `is_own`: True for a relation of the server's own, whose rows are not for us.
        """
        self.from_lsn = from_lsn
        self._staged = staged
        self._carried = carried
        self._last_carried = max(carried, default=(-1, 0))[0]
        self._last_expected = from_lsn <= staged.commit_lsn
        self._open = _Open.NONE
        self._begin: BeginMessage | None = None
        self.verified = from_lsn >= staged.position
        """True once everything before our position was replayed as we have stored it."""
        self.over = self.verified and not self._carried
        """True if all later messages are new."""
        self.new_from = staged.position
        """Valid if `over`: commit_lsn of the first new transaction; without one, the LSN up to which the source had
        sent."""
        self.relations: dict[bytes, bytes] = {}
        """The last Relation message of each relation: the source sends it only once a session."""
        self.received = 0
        """The source has sent everything before this LSN, by its last keepalive outside of a transaction."""
        self.reply_requested = False
        """True if the source has requested a reply since `skip` was called."""
        self._held: list[bytes] = []
        self._is_own = is_own
        self._own: set[int] = set()

    def skip(self, messages: list[bytes]) -> list[bytes]:
        """Skip what is in the log; returns the first new messages, at which the replay is over. Raises
        HistoryDivergedError.
        """
        self.reply_requested = False
        for place, data in enumerate(messages):
            if data[0] == pgoutput.KEEPALIVE:
                self._keepalive(pgoutput.decode_keepalive(data))
                if self.over:
                    return messages[place + 1 :]
            elif data[0] == pgoutput.XLOG_DATA and not self._receive(data):
                return [*self._held, *messages[place:]]
        return []

    def _keepalive(self, keepalive: KeepaliveMessage) -> None:
        self.reply_requested = self.reply_requested or keepalive.reply_requested
        if self._open is _Open.NONE:  # in a transaction, wal_end is its commit (postgres-facts.md 8)
            self.received = keepalive.wal_end
            self._idle(keepalive.wal_end)

    def _receive(self, data: bytes) -> bool:
        kind = data[_HEADER]
        if kind == _BEGIN:
            return self._take_begin(data)
        if kind == _COMMIT:
            self._open = _Open.NONE
            self._held.clear()
        elif kind == _RELATION:
            self._take_relation(data)
        elif (kind in _ROWS and not self._are_own(data)) or (kind == _MESSAGE and self._has_row(data)):
            return self._take_row()
        elif kind not in _NOTHING and kind not in _ROWS and kind != _MESSAGE:
            raise DecodeError(f"unknown replication message type {chr(kind)!r}")
        return True

    def _take_relation(self, data: bytes) -> None:
        self.relations[data[_HEADER + 1 : _HEADER + 5]] = data
        relation = pgoutput.decode(data, _HEADER)
        if isinstance(relation, RelationMessage) and self._is_own(relation):
            self._own.add(relation.oid)

    def _are_own(self, data: bytes) -> bool:
        """True if this row, or everything that this message truncates, is the server's own."""
        if not self._own:
            return False
        change = pgoutput.decode(data, _HEADER)
        if isinstance(change, TruncateMessage):
            return self._own.issuperset(change.relations)
        return isinstance(change, InsertMessage | UpdateMessage | DeleteMessage) and change.relation in self._own

    def _idle(self, wal_end: int) -> None:
        """Note that the source has sent everything before `wal_end`."""
        if self._last_expected and wal_end > self._staged.commit_lsn:
            raise self._absent()
        self.verified = self.verified or wal_end >= self._staged.position
        if self.verified and wal_end > self._last_carried:
            self._end(wal_end)

    def _take_begin(self, data: bytes) -> bool:
        begin = self._begin = pgoutput.decode_begin(data, _HEADER + 1)
        final = begin.final_lsn
        if self._last_expected and final > self._staged.commit_lsn:
            raise self._absent()
        self.verified = self.verified or final >= self._staged.position
        if self._is_known(begin):
            self._open = _Open.KNOWN
            return True
        if self.verified and final > self._last_carried:
            self._end(final)
            return False
        self._open = _Open.UNDECIDED
        self._held.append(data)
        return True

    def _is_known(self, begin: BeginMessage) -> bool:
        if (begin.final_lsn, begin.committed_at) in self._carried:
            return True
        if begin.final_lsn == self._staged.commit_lsn:
            if begin.committed_at != self._staged.committed_at:
                raise self._diverged("has it with another commit time than when we staged it")
            self._last_expected = False
        return begin.final_lsn <= self._staged.commit_lsn

    def _take_row(self) -> bool:
        if self._open is _Open.NONE or self._begin is None:
            raise DecodeError("a change outside of a transaction")
        if self._open is _Open.KNOWN:
            return True
        if not self.verified:
            raise self._diverged(f"has a transaction {lsn.show(self._begin.final_lsn)} that it never sent to us")
        self._end(self._begin.final_lsn)
        return False

    def _has_row(self, data: bytes) -> bool:
        message = pgoutput.decode(data, _HEADER)
        if not isinstance(message, LogicalMessage) or not message.transactional:
            return False
        if message.prefix not in ANNOTATION_SET and message.prefix not in (ANNOTATION_CLEAR, *OURS):
            return True
        if self._open is _Open.UNDECIDED:
            self._held.append(data)
        return False

    def _end(self, at: int) -> None:
        self.over = True
        self.new_from = at

    def _absent(self) -> HistoryDivergedError:
        return self._diverged("does not have it")

    def _diverged(self, what: str) -> HistoryDivergedError:
        stored, last, since = map(lsn.show, (self._staged.position, self._staged.commit_lsn, self.from_lsn))
        return HistoryDivergedError(
            f"we have stored up to {stored}, last of all transaction {last}; the source, replaying from {since} on, "
            f"{what}: it was restored to an earlier state and has written another history since; {ADOPT}"
        )
