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
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

_head = Struct(">hiqi").pack
_change = Struct(">iiiqiqi").pack
_place = Struct(">iiq").pack
_length = Struct(">i").pack
_NULL = b"\xff\xff\xff\xff"
_NO_REST = _NULL * 6

Rest = tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]
"""Columns of few rows: changes, exact, unchanged_columns (a JSON array), transaction_annotations, previous_pk and
metadata."""


def transaction_head(commit_lsn: int) -> bytes:
    """The first bytes of every row of a transaction."""
    return _head(len(COLUMNS), 8, commit_lsn, 4)


def change_head(relation_id: int, xid: int, committed_at: int, action: bytes) -> bytes:
    """The bytes that rows of one transaction, relation and action share. `committed_at`: µs since 2000."""
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
    """A row; `rest` is None when all of its values are null."""
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


def _field(value: bytes | None) -> bytes:
    return _NULL if value is None else _length(len(value)) + value
