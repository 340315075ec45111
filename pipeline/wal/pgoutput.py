"""Decodes the messages of pgoutput. Each function takes a complete message; a torn or unknown one raises DecodeError.

Layout: Postgres manual, "Logical Replication Message Formats" (src/backend/replication/logical/proto.c).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError

from pipeline.errors import DecodeError
from pipeline.wal.messages import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    KeepaliveMessage,
    LogicalMessage,
    Message,
    OriginMessage,
    RelationColumn,
    RelationMessage,
    Row,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
)

_u16 = Struct(">H").unpack_from
_u32 = Struct(">I").unpack_from
_u64 = Struct(">Q").unpack_from
_begin = Struct(">QqI")
_commit = Struct(">xQQq")  # its flags are unused
_keepalive = Struct(">QqB")
_status = Struct(">cQQQqB")
_new = tuple.__new__  # makes a named tuple at half the cost, for messages of each transaction

XLOG_DATA, KEEPALIVE = ord("w"), ord("k")
XLOG_HEADER = 25
"""Bytes of an XLogData message before pgoutput's message: type, start, end, clock."""


def decode(data: bytes, at: int = 0) -> Message:
    """Return the message that begins at offset `at` and ends where `data` ends."""
    try:
        message, end = _DECODERS[data[at]](data, at + 1)
    except KeyError:
        raise DecodeError(f"unknown replication message type {data[at : at + 1]!r}") from None
    except (IndexError, StructError, UnicodeDecodeError, ValueError) as error:
        raise DecodeError(f"torn replication message {data[at : at + 1]!r} of {len(data) - at} bytes") from error
    if end != len(data):
        raise DecodeError(f"replication message {data[at : at + 1]!r} of {len(data) - at} bytes ends after {end - at}")
    return message


def decode_begin(data: bytes, at: int) -> BeginMessage:
    """Decode a Begin without its type byte, up to the end of `data`; each transaction has one."""
    if len(data) - at != _begin.size:
        raise DecodeError(f"torn Begin of {len(data) - at} bytes")
    return _new(BeginMessage, _begin.unpack_from(data, at))


def decode_commit(data: bytes, at: int) -> CommitMessage:
    """Decode a Commit without its type byte, up to the end of `data`."""
    if len(data) - at != _commit.size:
        raise DecodeError(f"torn Commit of {len(data) - at} bytes")
    return _new(CommitMessage, _commit.unpack_from(data, at))


def decode_keepalive(data: bytes) -> KeepaliveMessage:
    """Decode a walsender's `k` message, with its type byte."""
    if len(data) != 1 + _keepalive.size:
        raise DecodeError(f"torn keepalive of {len(data)} bytes")
    wal_end, _clock, reply = _keepalive.unpack_from(data, 1)
    return KeepaliveMessage(wal_end, bool(reply))


def encode_status(written: int, confirmed: int, clock: int, *, applied: int = 0, ask: bool = False) -> bytes:
    """Encode our status update. `confirmed` is reported as flushed, and at least as applied; `clock`: µs since 2000.

    `ask`: request a keepalive from the source at once.
    """
    return _status.pack(b"r", written, confirmed, max(applied, confirmed), clock, ask)


def _row(data: bytes, at: int) -> tuple[Row, int]:
    row: Row = []
    append = row.append
    count = _u16(data, at)[0]
    at += 2
    for _ in range(count):
        kind = data[at]
        if kind == 116:  # t: text
            start = at + 5
            at = start + _u32(data, at + 1)[0]
            append(data[start:at])
        elif kind == 110:  # n: NULL
            append(None)
            at += 1
        elif kind == 117:  # u: TOASTed and unchanged
            append(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"column kind {kind}")
    return row, at


def _insert(data: bytes, at: int) -> tuple[Message, int]:
    relation = _u32(data, at)[0]
    if data[at + 4] != 78:  # N
        raise ValueError("Insert without a new row")
    new, end = _row(data, at + 5)
    return InsertMessage(relation, new), end


def _update(data: bytes, at: int) -> tuple[Message, int]:
    relation = _u32(data, at)[0]
    kind = data[at + 4]
    old = None
    at += 5
    if kind in (75, 79):  # K: old key, O: old row
        old, at = _row(data, at)
        if data[at] != 78:
            raise ValueError("Update without a new row")
        at += 1
    elif kind != 78:
        raise ValueError(f"Update with tuple kind {kind}")
    new, end = _row(data, at)
    return UpdateMessage(relation, old, kind == 79, new), end


def _delete(data: bytes, at: int) -> tuple[Message, int]:
    kind = data[at + 4]
    if kind not in (75, 79):
        raise ValueError(f"Delete with tuple kind {kind}")
    old, end = _row(data, at + 5)
    return DeleteMessage(_u32(data, at)[0], old, kind == 79), end


def _begin_transaction(data: bytes, at: int) -> tuple[Message, int]:
    return BeginMessage(*_begin.unpack_from(data, at)), at + _begin.size


def _commit_transaction(data: bytes, at: int) -> tuple[Message, int]:
    return CommitMessage(*_commit.unpack_from(data, at)), at + _commit.size


def _origin(data: bytes, at: int) -> tuple[Message, int]:
    name, end = _string(data, at + 8)
    return OriginMessage(_u64(data, at)[0], name), end


def _relation(data: bytes, at: int) -> tuple[Message, int]:
    oid = _u32(data, at)[0]
    schema, at = _string(data, at + 4)
    name, at = _string(data, at)
    identity = chr(data[at])
    count = _u16(data, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        key = bool(data[at] & 1)
        column, at = _string(data, at + 1)
        columns.append(RelationColumn(key, column, _u32(data, at)[0], _i32(data, at + 4)[0]))
        at += 8
    # Postgres sends pg_catalog as an empty schema name (logicalrep_write_namespace).
    return RelationMessage(oid, schema or "pg_catalog", name, identity, tuple(columns)), at


def _type(data: bytes, at: int) -> tuple[Message, int]:
    schema, end = _string(data, at + 4)
    name, end = _string(data, end)
    return TypeMessage(_u32(data, at)[0], schema or "pg_catalog", name), end


def _truncate(data: bytes, at: int) -> tuple[Message, int]:
    count, options = _u32(data, at)[0], data[at + 4]
    end = at + 5 + 4 * count
    if end > len(data):
        raise ValueError("Truncate announces more relations than it contains")
    oids = tuple(_u32(data, at + 5 + 4 * i)[0] for i in range(count))
    return TruncateMessage(oids, bool(options & 1), bool(options & 2)), end


def _logical_message(data: bytes, at: int) -> tuple[Message, int]:
    transactional = bool(data[at] & 1)
    lsn = _u64(data, at + 1)[0]
    prefix, at = _string(data, at + 9)
    start = at + 4
    end = start + _u32(data, at)[0]
    return LogicalMessage(transactional, lsn, prefix, data[start:end]), end


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


_i32 = Struct(">i").unpack_from

_DECODERS: dict[int, Callable[[bytes, int], tuple[Message, int]]] = {
    ord("B"): _begin_transaction,
    ord("C"): _commit_transaction,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _logical_message,
}
