"""Make rows of an events table, in COPY's binary format, of staged rows, without parsing their values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

COLUMNS = {
    "seq": "bigint",
    "commit_lsn": "bigint",
    "commit_idx": "integer",
    "xid": "bigint",
    "committed_at": "timestamp with time zone",
    "action": "text",
    "record_pk": "text",
    "record": "jsonb",
    "changes": "jsonb",
    "exact": "jsonb",
    "source_database_id": "uuid",
    "source_epoch": "integer",
    "source_table_oid": "bigint",
    "source_table_schema": "text",
    "source_table_name": "text",
}
"""The columns that are written, in this order, and the type that each must have."""

ACTIONS = frozenset({b"insert", b"update", b"delete"})
"""The actions whose rows this module can make. All have the same length."""

_lengths = Struct(">i").unpack_from
_seq = Struct(">hiq").pack
_BEHIND_SEQ = 14
_length = Struct(">i").pack
_record = Struct(">iB").pack
_RELATION, _CHANGE, _ACTION, _PLAIN_PK = 38, 42, 70, 76
"""Offsets in a staged row: the id of its relation, its xid, its action, and the length of its key if the action is one
of ACTIONS (`pipeline.log.staging.rows`)."""
_NULL = b"\xff\xff\xff\xff"
_NO_REST = _NULL * 6
_REST = -len(_NO_REST)
"""The offset of these bytes in a row that has nothing after its record; no text contains them."""
_AROUND = 4 + len(_NO_REST) - 1
"""The number of bytes around the record of such a row, without the version byte that an event has before it."""
_WIDTH = len(COLUMNS)
_JSONB = b"\x01"
"""The version that jsonb's binary format begins with; its text follows (jsonb_recv)."""


def relation_of(staged: bytes) -> int:
    """Return the id of a staged row's table version."""
    return int(_lengths(staged, _RELATION)[0])


def relations_of(staged: Iterable[bytes]) -> set[int]:
    """Return the ids of the table versions of all of these rows."""
    found = {row[_RELATION:_CHANGE] for row in staged}
    return set(map(int.from_bytes, found))


def table_fields(source: bytes, epoch: int, oid: int, schema: str, name: str) -> bytes:
    """Return the last columns of an event, which all events of one table version share."""
    values = (source, _length(epoch), oid.to_bytes(8, "big"), schema.encode(), name.encode())
    return b"".join([_length(len(value)) + value for value in values])


def exact_texts(staged: Iterable[bytes]) -> dict[int, tuple[bytes, bytes]]:
    """Return record and source texts, by place, of the rows with texts that jsonb may not return unchanged."""
    found = {}
    for place, row in enumerate(staged):
        if row[_REST:] != _NO_REST:
            _, record_at, rest_at = _bounds(row)
            at = rest_at + 4 + max(0, _lengths(row, rest_at)[0])
            if (length := _lengths(row, at)[0]) >= 0:
                found[place] = row[record_at + 4 : rest_at], row[at + 4 : at + 4 + length]
    return found


def events(
    staged: Iterable[bytes], tables: Mapping[int, bytes], seq: int, exact: Mapping[int, bytes | None]
) -> list[bytes]:
    """Return events with seqs from `seq` up, for the rows before the first one that is not plain.

    Only the shuffler can write a message, a truncate, annotations, and values that the WAL left out.
    `tables`: the `table_fields` of every table version; `exact`: the texts that the events keep of `exact_texts`.
    """
    made = []
    known = tail = b""
    for place, row in enumerate(staged):
        change = row[_RELATION - 4 : _PLAIN_PK]
        if change != known:
            if change[-6:] not in ACTIONS:
                break
            known, tail = change, _NULL * 2 + tables[relation_of(row)]
        key_length = _lengths(row, _PLAIN_PK)[0]
        if row[_REST:] != _NO_REST or key_length < 0:
            if (event := _event(row, tables, seq + place, exact.get(place))) is None:
                break
            made.append(event)
            continue
        at = _PLAIN_PK + 4 + key_length
        # The fast path for most rows: the worker spends its time here while there is a backlog.
        head, record = _seq(_WIDTH, 8, seq + place), _record(len(row) - at - _AROUND, 1)
        made.append(b"".join((head, row[2:22], row[_CHANGE:at], record, row[at + 4 : _REST], tail)))
    return made


def numbered(events: Iterable[bytes], seq: int) -> list[bytes]:
    """Return these events with other seqs, from `seq` up."""
    return [_seq(_WIDTH, 8, each) + event[_BEHIND_SEQ:] for each, event in enumerate(events, seq)]


def fields(event: bytes) -> list[bytes | None]:
    """Return the columns of an event, in binary form; None for a null."""
    found: list[bytes | None] = []
    at = 2
    for _ in COLUMNS:
        (length,) = _lengths(event, at)
        at += 4
        found.append(event[at : at + length] if length >= 0 else None)
        at += max(0, length)
    return found


def _bounds(row: bytes) -> tuple[int, int, int]:
    """Return the offsets of a staged row's key and record, and of the columns after them."""
    pk_at = _ACTION + _lengths(row, _ACTION - 4)[0]
    record_at = pk_at + 4 + max(0, _lengths(row, pk_at)[0])  # null if the row with its keys is too long
    return pk_at, record_at, record_at + 4 + _lengths(row, record_at)[0]


def _event(row: bytes, tables: Mapping[int, bytes], seq: int, exact: bytes | None) -> bytes | None:
    """Return the event of one row; None if the row is not plain."""
    _, record_at, rest_at = _bounds(row)
    rest = row[rest_at:]
    if rest == _NO_REST:
        changes = _NULL
    else:
        changes_end = 4 + max(0, _lengths(rest)[0])
        exact_end = changes_end + 4 + max(0, _lengths(rest, changes_end)[0])
        if rest[exact_end : exact_end + 8] != _NULL * 2 or rest[-4:] != _NULL:
            return None
        changes = _jsonb(rest[4:changes_end]) if changes_end > 4 else _NULL
    record = row[record_at + 4 : rest_at]
    texts = _NULL if exact is None else _jsonb(exact)
    head = _seq(_WIDTH, 8, seq)
    return b"".join((head, row[2:22], row[_CHANGE:record_at], _jsonb(record), changes, texts, tables[relation_of(row)]))


def _jsonb(text: bytes) -> bytes:
    return _length(len(text) + 1) + _JSONB + text
