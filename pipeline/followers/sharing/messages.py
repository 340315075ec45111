"""Messages between appliers and the shared reading over a socket; they are pickled, because both ends are this code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pipeline.followers.applying.followed_tables import FollowedTable, FollowedTables
from pipeline.followers.applying.table_versions import AS_OF_POSITION
from pipeline.followers.applying.upcoming_passes import LogSelection


@dataclass(frozen=True)
class PassRequest:
    """An applier's request for the next pass after a seq. `key`: appliers with the same key read the same events."""

    key: bytes
    after: int
    continues: bool


@dataclass(frozen=True)
class UnknownKey:
    """The answer that no stream has this key; the applier then sends its `LogSelection`."""


@dataclass(frozen=True)
class StillReading:
    """A sign of life while the answer is being read."""


@dataclass(frozen=True)
class BrokenPass:
    """The message that the rest of this pass could not be read."""


def shareable(source: LogSelection, seq: int) -> LogSelection:
    """Return the selection without details of one follower, and without `filled_upto` up to the seq of the follower."""
    tables = {table.oid: _shareable_table(table, seq) for table in sorted(source.tables, key=lambda table: table.oid)}
    return replace(source, tables=FollowedTables(tables, source.tables.version))


def _shareable_table(table: FollowedTable, seq: int) -> FollowedTable:
    filled = table.wanted.filled_upto
    wanted = replace(table.wanted, formed=AS_OF_POSITION, filled_upto=filled if filled > seq else 0)
    return replace(table, wanted=wanted, own=(), uniques=())


def key_of(source: LogSelection) -> bytes:
    """Return the key of a selection that `shareable` has returned."""
    parts = (source.id, source.tables.version, source.events_table, source.sizes, source.gap, *source.tables)
    return hashlib.sha256(repr(parts).encode()).digest()
