"""Collects staging rows, each with its place: commit_lsn, commit_idx and ordinal. Does no IO."""

from __future__ import annotations

from struct import error as StructError

from orjson import dumps

from pipeline.capture.replication.confirm_rule import ConfirmRule
from pipeline.capture.schema_history.staged_relation import StagedRelation
from pipeline.errors import DecodeError
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.rows import LONGEST, change_head, lsn_of, row, too_long, transaction_head, without_values
from pipeline.wal.lsn import show
from pipeline.wal.messages import BeginMessage, CommitMessage
from pipeline.wal.tuples import EncodedFields

KEPT_BYTES = 1_000_000
"""If the open transaction has more bytes than this, its changes are staged together with the complete transactions.
"""


_EXPLAINED = b"null"


class BatchBuilder:
    """Counts the changes of the open transaction and collects their rows, until `take` returns them.

    Tells `confirm_rule` where transactions begin and end.
    """

    def __init__(self, confirm_rule: ConfirmRule) -> None:
        self._on_begin, self._on_commit = confirm_rule.begin, confirm_rule.commit
        self._on_batch = confirm_rule.begin_staging
        self._rows: list[bytes] = []
        self._first_lsn = 0
        self._last_lsn = 0
        self._transactions = 0
        self._whole: CommitMessage | None = None
        self._open_at = 0
        """The index of the open transaction's first row."""
        self._taken_in_part = False
        self._places_range = False
        self._begin: BeginMessage | None = None
        self._open_lsn = -1
        """commit_lsn of the open transaction; -1 outside of a transaction."""
        self._head = b""
        self._idx = 0
        self._idx_after_row = 0
        """The commit_idx of the next row, unless changes without a row come before it that nothing explains yet."""
        self._ordinal = 0
        self._marked = False
        self._annotations: bytes | None = None
        self.size = 0
        """Bytes of the rows that `take` has not returned yet."""

    @property
    def in_transaction(self) -> bool:
        """True if a Begin has arrived whose Commit has not."""
        return self._begin is not None

    @property
    def unfinished(self) -> tuple[BeginMessage, int] | None:
        """The open transaction, and how many of its changes have arrived; None outside of a transaction."""
        return None if self._begin is None else (self._begin, self._idx)

    @property
    def has_whole(self) -> bool:
        """True if a complete transaction waits for `take`."""
        return self._whole is not None

    @property
    def commit_lsn(self) -> int:
        """commit_lsn of the open transaction, else of the last one; 0 before the first."""
        return self._begin.final_lsn if self._begin else self._last_lsn

    @property
    def next_place(self) -> tuple[int, int]:
        """The commit_lsn and commit_idx that the next change will have."""
        return self.commit_lsn, self._idx

    @property
    def xid(self) -> int | None:
        """The xid of the open transaction; None outside of one."""
        return self._begin.xid if self._begin else None

    def begin(self, message: BeginMessage) -> None:
        """Begin a transaction. Raises PartEndedError if the transaction belongs to another worker."""
        if self._begin is not None:
            raise DecodeError(f"Begin {show(message.final_lsn)} inside of transaction {show(self._begin.final_lsn)}")
        lsn = message.final_lsn
        self._on_begin(lsn)
        self._begin = message
        self._open_lsn = lsn
        self._open_at = len(self._rows)
        self._head = transaction_head(lsn)
        self._idx = self._idx_after_row = 0
        self._marked = False
        self._annotations = None

    def commit(self, message: CommitMessage) -> None:
        """Complete the open transaction."""
        if message.commit_lsn != self._open_lsn:
            raise DecodeError(f"Commit {show(message.commit_lsn)} does not match its Begin")
        self._on_commit()
        self._whole = message
        self._transactions += 1
        self._places_range |= self._marked
        self._begin = None
        self._open_lsn = -1

    def annotate(self, annotations: bytes | None) -> None:
        """Give later changes of the open transaction these annotations. Counts as a change, but adds no row."""
        follows_annotated_row = self._annotations is not None and self._idx == self._idx_after_row
        self._annotations = annotations
        self._idx += 1
        if follows_annotated_row:  # which explains the gap
            self._idx_after_row = self._idx

    def add(
        self,
        relation: StagedRelation,
        action: bytes,
        encoded: EncodedFields,
        changes: bytes | None = None,
        previous_pk: bytes | None = None,
    ) -> None:
        """Add the next change of the open transaction.

        If changes without a row came right before it, and neither this row nor the one before has annotations, they
        become the JSON value null. So `pipeline verify` can tell this gap in commit_idx from a lost row.
        """
        pk, record, exact, unchanged = encoded
        lsn, action_of_head = relation.change_head_of
        change = (
            relation.change_head
            if lsn == self._open_lsn and action_of_head is action
            else self._change(relation, action)
        )
        annotations = self._annotations or (_EXPLAINED if self._idx != self._idx_after_row else None)
        try:
            if changes is None and exact is None and unchanged is None and annotations is None:  # nor previous_pk
                staged = row(self._head, self._idx, self._ordinal, change, pk, record)
            else:
                rest = (changes, exact, dumps(unchanged) if unchanged else None, annotations, previous_pk, None)
                staged = row(self._head, self._idx, self._ordinal, change, pk, record, rest)
        except StructError:  # a field of 2 GB, whose length does not fit into COPY's format
            record = too_long(len(record) + len(changes or b"") + len(exact or b""))
            rest = (None, None, None, annotations, previous_pk, None)
            staged = row(self._head, self._idx, self._ordinal, change, pk, record, rest)
        if not self._rows:
            self._first_lsn = self._open_lsn
        self._last_lsn = self._open_lsn
        self._rows.append(staged)
        self.size += len(staged)
        self._idx += 1
        self._idx_after_row = self._idx
        self._ordinal += 1

    def place_range(self) -> None:
        """Count the next change, the marker of a range: its transaction then counts as one with rows."""
        self._idx += 1
        self._marked = True

    def skip(self) -> None:
        """Count the next change of the open transaction without staging it."""
        self._idx += 1

    def take_back(self, changes: int, skipped: int = 0) -> None:
        """Remove the last `changes` rows, and do not count `skipped` other changes: all of them come again.

        None of them is a truncation, and `take` has returned none of them.
        """
        for _ in range(changes):
            self.size -= len(self._rows.pop())
        self._idx -= changes + skipped
        if changes:
            self._idx_after_row = self._idx
        self._ordinal -= changes

    def take_whole(self) -> ChangeBatch | None:
        """Return what `take` returns, but if a complete transaction waits, keep the first changes of the open one
        here.
        """
        kept = self._rows[self._open_at :]
        size = sum(map(len, kept))
        if self._begin is None or self._whole is None or size > KEPT_BYTES:
            return self.take_batch()
        begin = self._begin
        del self._rows[self._open_at :]
        self._ordinal -= len(kept)
        self._begin = None
        if self._rows:
            self._last_lsn = lsn_of(self._rows[-1])
        batch = self.take_batch()
        self._begin = begin
        self._rows, self.size, self._open_at = kept, size, 0
        self._ordinal += len(kept)
        if kept:
            self._first_lsn = self._last_lsn = begin.final_lsn
        return batch

    def take_batch(self) -> ChangeBatch | None:
        """Return everything collected, also the beginning of an open transaction; None if nothing is collected.

        A batch may have no rows: transactions without changes for us still move the position. A transaction may also
        end without a row of it, because an earlier batch had all of them.
        """
        if not self._rows and self._whole is None:
            return None
        if self.size > LONGEST:
            self._rows = [without_values(staged) if len(staged) > LONGEST else staged for staged in self._rows]
        whole = self._whole
        ends_staged = (self._taken_in_part or self._places_range) and whole is not None
        self._taken_in_part = self._begin is not None and self._last_lsn == self._open_lsn
        batch = ChangeBatch(
            rows=self._rows,
            first_lsn=self._first_lsn,
            last_lsn=self._last_lsn,
            first_ordinal=self._ordinal - len(self._rows),
            transactions=self._transactions,
            position=whole.end_lsn if whole else None,
            commit_lsn=whole.commit_lsn if whole else None,
            committed_at=whole.committed_at if whole else None,
            open_lsn=self._begin.final_lsn if self._begin else None,
            open_changes=self._idx if self._begin else 0,
            ends_staged=ends_staged,
            places_range=self._places_range and whole is not None,
        )
        self._rows, self._whole, self._transactions, self.size = [], None, 0, 0
        self._open_at = 0
        self._places_range = False
        self._on_batch()
        return batch

    def _change(self, relation: StagedRelation, action: bytes) -> bytes:
        """Return the bytes that rows of this relation and action share in the open transaction."""
        begin = self._begin
        if begin is None:
            raise DecodeError("a change outside of a transaction")
        relation.change_head_of, relation.last_change = (begin.final_lsn, action), (begin.final_lsn, begin.xid)
        relation.change_head = change_head(relation.id, begin.xid, begin.committed_at, action)
        return relation.change_head
