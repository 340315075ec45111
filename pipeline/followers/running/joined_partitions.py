"""Partitions that joined a table with rows: until the log has these, events may change rows that it lacks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.followers.applying.copied import Copied
from pipeline.followers.applying.table_versions import Place
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOOK_SECONDS = 0.5
"""How often the applier asks whether the server has found a change of a partition."""
_ROOM = "followers.running"


@dataclass(frozen=True)
class _Joined:
    """A partition whose rows are read, or compared with the log. `until`: the log has them from there on."""

    root_oid: int
    epoch: int
    seen_lsn: int
    until: int | None


def joined(log: Connection, source: uuid.UUID, seq: int, made: Mapping[int, Copied | None]) -> dict[int, int | None]:
    """Return tables, by oid, that still get rows of a partition after this seq, and the seq of the last; None: not yet.

    `made`: the follower's copies. One that was made since the partition joined has its rows.
    """
    found = queries.rows(log, _Joined, statement(_ROOM, "joined_partitions"), {"source": source, "seq": seq})
    until = dict[int, int | None]()
    for each in found:
        copy = made.get(each.root_oid)
        if copy is None or copy.place < Place(each.epoch, each.seen_lsn, 0):
            known = until.get(each.root_oid, 0)
            until[each.root_oid] = None if known is None or each.until is None else max(known, each.until)
    return until


class PartitionNews:
    """Tells an applier that partitions at a source have changed, or the log has got their rows. Over its connection."""

    def __init__(self, log: Connection) -> None:
        self._log = log
        self._asked_at = 0.0
        self._known: tuple[Any, ...] | None = None

    def begin(self) -> None:
        """Only what comes after this is news."""
        self._known, self._asked_at = self._ask(), time.monotonic()

    def has_come(self) -> bool:
        """True if there is any; asks now and then."""
        if self._known is None or time.monotonic() < self._asked_at + LOOK_SECONDS:
            return False
        self._asked_at = time.monotonic()
        return self._ask() != self._known

    def _ask(self) -> tuple[Any, ...] | None:
        return self._log.execute(statement(_ROOM, "partition_news")).fetchone()
