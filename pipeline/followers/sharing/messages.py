"""Messages over a socket between appliers and the process that reads the log for several of them.

A pass is a number of events that are read and applied together. Messages are pickled, because both ends are this code.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pipeline.followers.applying.followed_tables import FollowedTable, FollowedTables
from pipeline.followers.applying.table_versions import AS_OF_POSITION
from pipeline.followers.applying.upcoming_passes import LogSelection


@dataclass(frozen=True)
class PassRequest:
    """An applier's request for the next pass after a seq.

    `key`: identifies the events that the applier wants; appliers with the same key share a stream. `continues`: the
    applier has received the pass that ended at this seq.
    """

    key: bytes
    after: int
    continues: bool


@dataclass(frozen=True)
class UnknownKey:
    """The answer that the reader does not know this key; the applier must then send its `LogSelection`."""


@dataclass(frozen=True)
class StillReading:
    """The message that the reader is alive and still reads the pass."""


@dataclass(frozen=True)
class BrokenPass:
    """The message that the rest of this pass could not be read."""


def shareable(source: LogSelection, seq: int) -> LogSelection:
    """Return the selection without details that only one follower needs, so that appliers can share a stream.

    `seq`: the follower's position; tables that are filled up to it count as filled.
    """
    tables = {table.oid: _shareable_table(table, seq) for table in sorted(source.tables, key=lambda table: table.oid)}
    return replace(source, tables=FollowedTables(tables, source.tables.history_number))


def _shareable_table(table: FollowedTable, seq: int) -> FollowedTable:
    filled = table.wanted.filled_upto
    wanted = replace(table.wanted, reached=AS_OF_POSITION, filled_upto=filled if filled > seq else 0)
    return replace(table, wanted=wanted, own=(), uniques=())


def key_of(source: LogSelection) -> bytes:
    """Return the key that identifies a selection, which must come from `shareable`."""
    parts = (source.id, source.tables.history_number, source.events_table, source.sizes, source.gap, *source.tables)
    return hashlib.sha256(repr(parts).encode()).digest()
