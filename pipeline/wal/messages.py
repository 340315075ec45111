"""The messages of pgoutput, protocol version 1 with logical messages, and of the walsender around them.

Source: the Postgres manual, "Logical Replication Message Formats" and "Streaming Replication Protocol".
LSNs are integers; times are microseconds since 2000-01-01 UTC, as on the wire. Tuples, because one is made per change.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class UnchangedValue(Enum):
    """Stands for a TOASTed value that the update did not touch, so that the WAL lacks it."""

    VALUE = "unchanged"


UNCHANGED: Final = UnchangedValue.VALUE

Value = bytes | None | UnchangedValue
"""Text of a value in UTF-8, None for SQL NULL, or UNCHANGED."""

Row = list[Value]


class BeginMessage(NamedTuple):
    """Opens a transaction. `final_lsn`: the LSN of its commit record, which is an event's commit_lsn."""

    final_lsn: int
    committed_at: int
    xid: int


class CommitMessage(NamedTuple):
    """Closes a transaction. `end_lsn`: the position to confirm and to resume from."""

    commit_lsn: int
    end_lsn: int
    committed_at: int


class OriginMessage(NamedTuple):
    """Says that the transaction was replicated from another server."""

    commit_lsn: int
    name: str


class RelationColumn(NamedTuple):
    """A column of a relation. `key`: part of the replica identity (with FULL: every column)."""

    key: bool
    name: str
    type_oid: int
    type_modifier: int


class RelationMessage(NamedTuple):
    """Describes a table's columns for the changes that follow. `replica_identity`: pg_class.relreplident: d, n, f or
    i.
    """

    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


class TypeMessage(NamedTuple):
    """Names a type that is not built in."""

    oid: int
    schema: str
    name: str


class InsertMessage(NamedTuple):
    """A new row."""

    relation: int
    new: Row


class UpdateMessage(NamedTuple):
    """A changed row. `old` is None, or the old row: only key columns filled (`K`) unless `old_is_full` (`O`)."""

    relation: int
    old: Row | None
    old_is_full: bool
    new: Row


class DeleteMessage(NamedTuple):
    """A removed row: only key columns filled (`K`) unless `old_is_full` (`O`)."""

    relation: int
    old: Row
    old_is_full: bool


class TruncateMessage(NamedTuple):
    """Emptied tables, by oid, in the order the server lists them."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class LogicalMessage(NamedTuple):
    """A message of `pg_logical_emit_message`. If it is not transactional, it stands outside of any Begin and Commit."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message = (
    BeginMessage
    | CommitMessage
    | OriginMessage
    | RelationMessage
    | TypeMessage
    | InsertMessage
    | UpdateMessage
    | DeleteMessage
    | TruncateMessage
    | LogicalMessage
)


class KeepaliveMessage(NamedTuple):
    """A keepalive of the walsender: how far it has sent, and whether it requests a reply at once."""

    wal_end: int
    reply_requested: bool
