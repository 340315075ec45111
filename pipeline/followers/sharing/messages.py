"""What appliers and the one that reads for several of them say to each other over a socket: pickled, as both are this
program."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pipeline.followers.applying.followed_tables import FollowedTable, FollowedTables
from pipeline.followers.applying.table_versions import AS_OF_POSITION
from pipeline.followers.applying.upcoming import Source


@dataclass(frozen=True)
class Ask:
    """For what comes after a seq. `key`: who has the same reads the same."""

    key: bytes
    after: int
    continues: bool


@dataclass(frozen=True)
class Unknown:
    """Nobody else reads that: the answer is what it is, a `Source`."""


@dataclass(frozen=True)
class Working:
    """On the answer: a sign of life."""


@dataclass(frozen=True)
class Broken:
    """The rest of this pass could not be read."""


def as_read(source: Source, seq: int) -> Source:
    """Without what only concerns one follower, or nobody who is past a seq."""
    tables = {table.oid: _as_read(table, seq) for table in sorted(source.tables, key=lambda table: table.oid)}
    return replace(source, tables=FollowedTables(tables, source.tables.version))


def _as_read(table: FollowedTable, seq: int) -> FollowedTable:
    filled = table.wanted.filled_upto
    wanted = replace(table.wanted, formed=AS_OF_POSITION, filled_upto=filled if filled > seq else 0)
    return replace(table, wanted=wanted, own=(), uniques=())


def key_of(source: Source) -> bytes:
    """Of what `as_read` returns."""
    parts = (source.id, source.tables.version, source.events_table, source.sizes, source.gap, *source.tables)
    return hashlib.sha256(repr(parts).encode()).digest()
