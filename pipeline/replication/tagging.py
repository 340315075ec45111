"""The stream's messages as staging rows, each tagged with (commit_lsn, commit_idx). Keeps state, does no IO."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from orjson import dumps

from pipeline.catalog.relations import TableForm
from pipeline.errors import DecodeError
from pipeline.staging.rows import change_head, row, transaction_head
from pipeline.staging.writer import Batch
from pipeline.wal import encoding, pgoutput
from pipeline.wal.encoding import RowEncoder
from pipeline.wal.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Row,
    Truncate,
    Type,
    Update,
)
from pipeline.wal.tuples import TupleEncoder, Written

_u32 = Struct(">I").unpack_from
_BEGIN, _COMMIT = ord("B"), ord("C")
_NEW_ROWS = {ord("I"): b"insert", ord("U"): b"update"}

ANNOTATION_SET = frozenset({"pipeline:annotations", "sequin:transaction_annotations.set"})
ANNOTATION_CLEAR = "sequin:transaction_annotations.clear"


NEVER = 2**63
"""No LSN is as large."""


class PartEnded(Exception):
    """What comes now is another worker's."""


class StagedRelation:
    """A relation as rows refer to it: its id in the history and how its rows are encoded."""

    def __init__(self, relation_id: int, form: TableForm) -> None:
        self.id = relation_id
        names = [column.name for column in form.columns]
        self._key = [names.index(name) for name in form.key_columns if name in names]
        self.encoder = RowEncoder([(column.name, column.base_type_oid) for column in form.columns], self._key)
        self.encode_tuple = TupleEncoder(self.encoder).encode
        self.head = b""
        """What rows of the transaction and action `head_of` begin their change with."""
        self.head_of = (-1, b"")

    def known_of(self, old: Row | None, *, full: bool) -> Row | None:
        """What an old tuple says: with a bare key (`K`) nothing of the other columns, which it has as NULL."""
        if old is None or full:
            return old
        return [value if column in self._key else UNCHANGED for column, value in enumerate(old)]


class Tagger:
    """Counts changes as pgoutput sends them and turns each into a staging row.

    `learn` is told of Relation messages and of message prefixes by the worker, which looks them up first; `feed`
    takes everything else. `take` hands over what has come together.
    """

    def __init__(self) -> None:
        self._relations: dict[int, StagedRelation] = {}
        self._prefixes: dict[str, StagedRelation] = {}
        self._rows: list[bytes] = []
        self._first_lsn = 0
        self._last_lsn = 0
        self._transactions = 0
        self._whole: Commit | None = None
        self._taken_in_part = False
        self._begin: Begin | None = None
        self._open_lsn = -1
        self._head = b""
        self._idx = 0
        self._ordinal = 0
        self._annotations: bytes | None = None
        self.until = NEVER
        """Transactions that commit here or later are another worker's: PartEnded."""
        self.size = 0
        """Bytes of rows not taken yet."""
        self._handlers: dict[type, Callable[..., None]] = {
            Insert: self._insert,
            Update: self._update,
            Delete: self._delete,
            Begin: self._open,
            Commit: self._close,
            Truncate: self._truncate,
            LogicalMessage: self._message,
            Origin: self._ignore,
            Type: self._ignore,
            Relation: self._unlearned,
        }

    @property
    def in_transaction(self) -> bool:
        """Whether a Begin has come whose Commit has not."""
        return self._begin is not None

    @property
    def unfinished(self) -> tuple[Begin, int] | None:
        """The open transaction, and how many changes of it have come; None when none is open."""
        return None if self._begin is None else (self._begin, self._idx)

    @property
    def has_whole(self) -> bool:
        """Whether a whole transaction waits to be taken."""
        return self._whole is not None

    @property
    def commit_lsn(self) -> int:
        """Of the open transaction, else of the last one; 0 before the first."""
        return self._begin.final_lsn if self._begin else self._last_lsn

    @property
    def next_place(self) -> tuple[int, int]:
        """commit_lsn and commit_idx that the next change will have."""
        return self.commit_lsn, self._idx

    @property
    def xid(self) -> int | None:
        """Of the open transaction."""
        return self._begin.xid if self._begin else None

    def last_change(self, relation: int) -> int:
        """commit_lsn of the last transaction with rows of this relation since it was learned; 0 when there is none."""
        staged = self._relations.get(relation)
        return max(staged.head_of[0], 0) if staged else 0

    def feed(self, message: Message) -> None:
        """Take a message. Raises DecodeError for what cannot follow what came before."""
        self._handlers[type(message)](message)

    def feed_bytes(self, data: bytes, at: int) -> None:
        """`feed` the message in `data` from `at` on; new rows without an old one, the most there is, in one pass."""
        kind = data[at]
        if kind == _BEGIN:
            self._open(pgoutput.decode_begin(data, at + 1))
            return
        if kind == _COMMIT:
            self._close(pgoutput.decode_commit(data, at + 1))
            return
        action = _NEW_ROWS.get(kind)
        if action is not None and data[at + 5 : at + 6] == b"N":
            relation = self._relations.get(_u32(data, at + 1)[0])
            encoded = relation.encode_tuple(data, at + 6) if relation else None
            if relation and encoded:
                self._add(relation, action, encoded)
                return
        self.feed(pgoutput.decode(data, at))

    def take_back(self, changes: int) -> None:
        """Forget so many, the last that were fed, none of them a truncation or taken yet: they are fed again."""
        for _ in range(changes):
            self.size -= len(self._rows.pop())
        self._idx -= changes
        self._ordinal -= changes

    def learn(self, relation: Relation | str, staged: StagedRelation) -> None:
        """Rows of this relation, or messages of this prefix, are encoded so from now on."""
        if isinstance(relation, str):
            self._prefixes[relation] = staged
        else:
            self._relations[relation.oid] = staged

    def rename(self, oid: int, staged: StagedRelation) -> None:
        """Rows of this relation, where it is known, are of this form from now on."""
        if oid in self._relations:
            self._relations[oid] = staged

    def knows_prefix(self, message: LogicalMessage) -> bool:
        """Whether `feed` can take this message without `learn` first."""
        return (
            not message.transactional
            or message.prefix in self._prefixes
            or message.prefix in ANNOTATION_SET
            or message.prefix == ANNOTATION_CLEAR
        )

    def take(self) -> Batch | None:
        """Everything that has come together, the beginning of an open transaction included; None when there is nothing.

        A batch may lack rows: transactions of which nothing is staged still move the position, and what was taken in
        part may have nothing more to come than its end.
        """
        if not self._rows and self._whole is None:
            return None
        whole = self._whole
        ends_staged = self._taken_in_part and whole is not None
        self._taken_in_part = self._begin is not None and self._last_lsn == self._open_lsn
        batch = Batch(
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
        )
        self._rows, self._whole, self._transactions, self.size = [], None, 0, 0
        return batch

    def _open(self, message: Begin) -> None:
        if self._begin is not None:
            raise DecodeError(f"Begin {message.final_lsn} inside of transaction {self._begin.final_lsn}")
        if message.final_lsn >= self.until:
            raise PartEnded
        self._begin = message
        self._open_lsn = message.final_lsn
        self._head = transaction_head(message.final_lsn)
        self._idx = 0
        self._annotations = None

    def _close(self, message: Commit) -> None:
        if self._begin is None or self._begin.final_lsn != message.commit_lsn:
            raise DecodeError(f"Commit {message.commit_lsn} does not match its Begin")
        self._whole = message
        self._transactions += 1
        self._begin = None
        self._open_lsn = -1

    def _insert(self, message: Insert) -> None:
        relation = self._relation(message.relation)
        self._add(relation, b"insert", relation.encoder.encode(message.new))

    def _update(self, message: Update) -> None:
        relation = self._relation(message.relation)
        encoder = relation.encoder
        # A bare key too: one that is TOASTed and was left alone is there and not in the new row.
        old = relation.known_of(message.old, full=message.old_is_full)
        changes = None if message.old is None else encoder.changes(message.old, message.new, full=message.old_is_full)
        encoded = encoder.encode(message.new, old)
        previous = encoder.key_of(message.old) if message.old is not None and not message.old_is_full else None
        self._add(relation, b"update", encoded, changes, previous if previous != encoded.record_pk else None)

    def _delete(self, message: Delete) -> None:
        relation = self._relation(message.relation)
        encode = relation.encoder.encode if message.old_is_full else relation.encoder.encode_present
        self._add(relation, b"delete", encode(message.old))

    def _truncate(self, message: Truncate) -> None:
        for oid in message.relations:
            relation = self._relation(oid)
            self._add(relation, b"truncate", encoding.Encoded(b"", b"{}", None, None))

    def _message(self, message: LogicalMessage) -> None:
        if not message.transactional:
            return
        if message.prefix in ANNOTATION_SET:
            self._annotations = encoding.transaction_annotations(message.content)
            self._idx += 1
        elif message.prefix == ANNOTATION_CLEAR:
            self._annotations = None
            self._idx += 1
        else:
            record = encoding.message_record(message.content)
            encoded = encoding.Encoded(b"", record, None, None)
            self._add(self._prefixes[message.prefix], b"message", encoded)

    def _ignore(self, message: Message) -> None:
        """Says nothing that rows need."""

    def _unlearned(self, message: Relation) -> None:
        raise DecodeError(f"relation {message.oid} was fed before it was learned")

    def _relation(self, oid: int) -> StagedRelation:
        try:
            return self._relations[oid]
        except KeyError:
            raise DecodeError(f"a change of relation {oid}, which the source has not described") from None

    def _change(self, relation: StagedRelation, action: bytes) -> bytes:
        """What rows of this relation and action share in the open transaction."""
        begin = self._begin
        if begin is None:
            raise DecodeError("a change outside of a transaction")
        relation.head_of = begin.final_lsn, action
        relation.head = change_head(relation.id, begin.xid, begin.committed_at, action)
        return relation.head

    def _add(
        self,
        relation: StagedRelation,
        action: bytes,
        encoded: Written,
        changes: bytes | None = None,
        previous_pk: bytes | None = None,
    ) -> None:
        pk, record, exact, unchanged = encoded
        lsn, of_action = relation.head_of
        change = relation.head if lsn == self._open_lsn and of_action is action else self._change(relation, action)
        annotations = self._annotations
        if changes is None and exact is None and unchanged is None and annotations is None:  # so no previous_pk either
            staged = row(self._head, self._idx, self._ordinal, change, pk, record)
        else:
            rest = (changes, exact, dumps(unchanged) if unchanged else None, annotations, previous_pk)
            staged = row(self._head, self._idx, self._ordinal, change, pk, record, rest)
        if not self._rows:
            self._first_lsn = self._open_lsn
        self._last_lsn = self._open_lsn
        self._rows.append(staged)
        self.size += len(staged)
        self._idx += 1
        self._ordinal += 1
