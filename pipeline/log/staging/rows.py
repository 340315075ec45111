"""Rows of `wal_events` in COPY's binary format, one bytes object per row (Postgres manual, "COPY", Binary Format)."""

from __future__ import annotations

from struct import Struct

COLUMNS = (
    "commit_lsn",
    "commit_idx",
    "ordinal",
    "relation_id",
    "xid",
    "committed_at",
    "action",
    "record_pk",
    "record",
    "changes",
    "exact",
    "unchanged_columns",
    "transaction_annotations",
    "previous_pk",
    "metadata",
)
LONGEST = 1_000_000_000
"""Bytes of the longest row that is staged. Postgres makes none of 1,073,741,823 bytes (MaxAllocSize, memutils.h), and
needs some of them to compress it."""

_head = Struct(">hiqi").pack
_change = Struct(">iiiqiqi").pack
_place = Struct(">iiq").pack
_length = Struct(">i").pack
_read_length = Struct(">i").unpack_from
_NULL = b"\xff\xff\xff\xff"
_NO_REST = _NULL * 6
_RECORD, _ANNOTATIONS = 8, 12
_SHORT = 1_000_000
"""Bytes of a value that is certainly not what makes a row too long."""

Rest = tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]
"""Columns of few rows: changes, exact, unchanged_columns (a JSON array), transaction_annotations, previous_pk and
metadata."""


def transaction_head(commit_lsn: int) -> bytes:
    """Return the first bytes of every row of a transaction."""
    return _head(len(COLUMNS), 8, commit_lsn, 4)


def change_head(relation_id: int, xid: int, committed_at: int, action: bytes) -> bytes:
    """Return the bytes that rows of one transaction, relation and action share. `committed_at`: µs since 2000."""
    return _change(4, relation_id, 8, xid, 8, committed_at, len(action)) + action


def row(
    head: bytes,
    idx: int,
    ordinal: int,
    change: bytes,
    record_pk: bytes,
    record: bytes,
    rest: Rest | None = None,
) -> bytes:
    """Return a row; `rest` is None if all of its values are null."""
    return b"".join(
        (
            head,
            _place(idx, 8, ordinal),
            change,
            _length(len(record_pk)),
            record_pk,
            _length(len(record)),
            record,
            _NO_REST if rest is None else b"".join([_field(value) for value in rest]),
        )
    )


def lsn_of(staged: bytes) -> int:
    """Return the commit_lsn of a row."""
    return int.from_bytes(staged[6:14], "big", signed=True)


def committed_at_of(staged: bytes) -> int:
    """Return the committed_at of a row, µs since 2000."""
    return int.from_bytes(staged[58:66], "big", signed=True)


def renumbered(staged: list[bytes], first: int) -> list[bytes]:
    """Return these rows with ordinals that count up from `first`."""
    return [row[:26] + (first + place).to_bytes(8, "big") + row[34:] for place, row in enumerate(staged)]


def too_long(size: int) -> bytes:
    """Return the record to stage for a row of `size` bytes. The record is not JSON: the shuffler stops at the row or
    parks it.
    """
    return f"a row of {size:,} bytes as JSON, of which {LONGEST:,} can be kept; its values are not in the log".encode()


def without_values(staged: bytes) -> bytes:
    """Return a row that is too long with its place and keys only, and with `too_long` instead of its values."""
    fields: list[bytes | None] = []
    at = 2
    for _ in COLUMNS:
        (length,) = _read_length(staged, at)
        at += 4
        kept = 0 <= length <= _SHORT
        fields.append(staged[at : at + length] if kept else None)
        at += max(length, 0)
    fields[_RECORD] = too_long(len(staged))
    fields[_RECORD + 1 : _ANNOTATIONS] = [None] * (_ANNOTATIONS - _RECORD - 1)
    return staged[:2] + b"".join([_field(value) for value in fields])


def _field(value: bytes | None) -> bytes:
    return _NULL if value is None else _length(len(value)) + value
