"""Turns the stream's messages into staging rows, each tagged with (commit_lsn, commit_idx). Has state, does no IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import Struct

from pipeline.capture.replication.batch_builder import BatchBuilder
from pipeline.capture.replication.confirm_rule import ConfirmRule
from pipeline.capture.schema_history.staged_relation import StagedRelation
from pipeline.errors import DecodeError
from pipeline.wal import encoding, pgoutput
from pipeline.wal.markers import OURS, POSITION_MARKER
from pipeline.wal.messages import (
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    Message,
    OriginMessage,
    RelationMessage,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
)

_u32 = Struct(">I").unpack_from
_BEGIN, _COMMIT = ord("B"), ord("C")
_ROWS = frozenset(b"IUD")
_NEW_ROWS = {ord("I"): b"insert", ord("U"): b"update"}

ANNOTATION_SET = frozenset({"pipeline:annotations", "sequin:transaction_annotations.set"})
ANNOTATION_CLEAR = "sequin:transaction_annotations.clear"


class ChangeTagger:
    """Turns each change that pgoutput sends into a staging row of its `batch`.

    The worker looks up Relation messages, and the first logical message, and then calls `learn`; `feed` takes all
    other messages. Tells `confirm_rule` where transactions begin and end, and which position a client waits for.
    """

    def __init__(self, confirm_rule: ConfirmRule | None = None, encoding: str = "UTF8") -> None:
        """`encoding`: the source's encoding, which the content of logical messages has."""
        self._encoding = encoding
        self._relations: dict[int, StagedRelation] = {}
        self._messages: StagedRelation | None = None
        self._ignored: set[int] = set()
        self._confirm_rule = confirm_rule or ConfirmRule()
        self.batch = BatchBuilder(self._confirm_rule)
        """The rows collected so far, and the open transaction."""
        self._begin, self._add, self._commit = self.batch.begin, self.batch.add, self.batch.commit
        self._handlers: dict[type, Callable[..., None]] = {
            InsertMessage: self._insert,
            UpdateMessage: self._update,
            DeleteMessage: self._delete,
            BeginMessage: self._begin,
            CommitMessage: self._commit,
            TruncateMessage: self._truncate,
            LogicalMessage: self._message,
            OriginMessage: self._ignore,
            TypeMessage: self._ignore,
            RelationMessage: self._unlearned,
        }

    def last_change(self, relation: int) -> tuple[int, int]:
        """Return commit_lsn and xid of the last transaction with rows of this relation since `learn` was called for
        it.

        Both are 0 if there is none.
        """
        staged = self._relations.get(relation)
        return staged.last_change if staged else (0, 0)

    def feed(self, message: Message) -> None:
        """Take a message. Raises DecodeError if it cannot follow the messages before it."""
        self._handlers[type(message)](message)

    def feed_bytes(self, data: bytes, at: int) -> None:
        """Take the message in `data` from `at` on, as `feed`; new rows without old ones, the most frequent kind, in
        one pass.
        """
        kind = data[at]
        if kind == _BEGIN:
            self._begin(pgoutput.decode_begin(data, at + 1))
            return
        if kind == _COMMIT:
            self._commit(pgoutput.decode_commit(data, at + 1))
            return
        action = _NEW_ROWS.get(kind)
        if action is not None and data[at + 5 : at + 6] == b"N":
            relation = self._relations.get(_u32(data, at + 1)[0])
            encoded = relation.encode_tuple(data, at + 6) if relation else None
            if relation and encoded:
                self._add(relation, action, encoded)
                return
        if kind in _ROWS and int.from_bytes(data[at + 1 : at + 5]) in self._ignored:
            self.batch.skip()
        else:
            self.feed(pgoutput.decode(data, at))

    def feed_all(self, messages: Iterable[bytes], at: int) -> None:
        """Call `feed_bytes` for each message."""
        for data in messages:
            self.feed_bytes(data, at)

    def take_back(self, messages: Collection[bytes], at: int) -> None:
        """Undo `feed_all` of these rows, which were the last messages, and which the batch still holds."""
        staged = sum(_u32(data, at + 1)[0] not in self._ignored for data in messages)
        self.batch.take_back(staged, len(messages) - staged)

    def ignore(self, oid: int) -> None:
        """From now on, count the changes of this relation without staging them."""
        self._ignored.add(oid)

    def learn(self, message: RelationMessage | LogicalMessage, staged: StagedRelation) -> None:
        """From now on, encode rows of this relation, or all logical messages, in this way."""
        if isinstance(message, LogicalMessage):
            self._messages = staged
        else:
            self._relations[message.oid] = staged

    def rename(self, oid: int, staged: StagedRelation) -> None:
        """From now on, rows of this relation have this table version; ignored if the relation is not known."""
        if oid in self._relations:
            staged.last_change = self._relations[oid].last_change
            self._relations[oid] = staged

    def knows(self, message: LogicalMessage) -> bool:
        """True if `feed` can take this message without a call of `learn` first."""
        return (
            not message.transactional
            or self._messages is not None
            or message.prefix in ANNOTATION_SET
            or message.prefix in (ANNOTATION_CLEAR, POSITION_MARKER)
        )

    def _insert(self, message: InsertMessage) -> None:
        relation = self._relation(message.relation)
        self._add(relation, b"insert", relation.encoder.encode(message.new))

    def _update(self, message: UpdateMessage) -> None:
        relation = self._relation(message.relation)
        encoder = relation.encoder
        # Also if only the key was sent: an unchanged TOASTed key is in the old row, but not in the new one.
        old = relation.known_values(message.old, full=message.old_is_full)
        changes = None if message.old is None else encoder.changes(message.old, message.new, full=message.old_is_full)
        encoded = encoder.encode(message.new, old)
        previous = encoder.key_of(message.old) if message.old is not None and not message.old_is_full else None
        self._add(relation, b"update", encoded, changes, previous if previous != encoded.record_pk else None)

    def _delete(self, message: DeleteMessage) -> None:
        relation = self._relation(message.relation)
        encode = relation.encoder.encode if message.old_is_full else relation.encoder.encode_present
        self._add(relation, b"delete", encode(message.old))

    def _truncate(self, message: TruncateMessage) -> None:
        for oid in message.relations:
            if oid in self._ignored:
                self.batch.skip()
                continue
            relation = self._relation(oid)
            self._add(relation, b"truncate", encoding.EncodedRow(b"", b"{}", None, None))

    def _message(self, message: LogicalMessage) -> None:
        if not message.transactional:
            return
        if message.prefix in OURS:
            self.batch.skip()
            if message.prefix == POSITION_MARKER:
                self._confirm_rule.want(self.batch.commit_lsn)
        elif message.prefix in ANNOTATION_SET:
            self.batch.annotate(encoding.transaction_annotations(message.content, self._encoding))
        elif message.prefix == ANNOTATION_CLEAR:
            self.batch.annotate(None)
        else:
            record = encoding.message_record(message.content, self._encoding)
            if self._messages is None:
                raise DecodeError("a logical message was fed without `learn`")
            # The shuffler takes the prefix from here: a relation for each prefix would stay forever.
            encoded = encoding.EncodedRow(message.prefix.encode(), record, None, None)
            self._add(self._messages, b"message", encoded)

    def _ignore(self, message: Message) -> None:
        """Ignore a message that staging rows do not need."""

    def _unlearned(self, message: RelationMessage) -> None:
        raise DecodeError(f"relation {message.oid} was fed without `learn`")

    def _relation(self, oid: int) -> StagedRelation:
        try:
            return self._relations[oid]
        except KeyError:
            raise DecodeError(f"a change of relation {oid}, which the source has not described") from None
