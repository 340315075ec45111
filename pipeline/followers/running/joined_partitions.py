"""Finds partitions that joined a table with rows. Until the log has these rows, an event may change one it lacks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOOK_SECONDS = 0.5
"""Seconds between two checks whether the server has found a change of a partition."""
_FOLDER = "followers.running"


@dataclass(frozen=True)
class _JoinedPartition:
    """A partition whose rows are read, or compared with the log. `until`: the seq from which the log has them."""

    root_oid: int
    epoch: int
    seen_lsn: int
    until: int | None


def find_joined(
    log: Connection, source: uuid.UUID, seq: int, made: Mapping[int, SnapshotCopy | None]
) -> dict[int, int | None]:
    """Return oids of tables that still get rows of a partition after this seq, with the seq of the last row.

    The seq is None if the rows are not in the log yet. `made`: the follower's copies; a copy that was made after the
    partition joined contains its rows.
    """
    values = {"source": source, "seq": seq}
    found = queries.rows(log, _JoinedPartition, statement(_FOLDER, "joined_partitions"), values)
    until = dict[int, int | None]()
    for each in found:
        copy = made.get(each.root_oid)
        if copy is None or copy.place < HistoryPlace(each.epoch, each.seen_lsn, 0):
            known = until.get(each.root_oid, 0)
            until[each.root_oid] = None if known is None or each.until is None else max(known, each.until)
    return until


class PartitionNews:
    """Tells an applier that partitions at a source have changed, or that the log has got their rows."""

    def __init__(self, log: Connection) -> None:
        self._log = log
        self._asked_at = 0.0
        self._known: tuple[Any, ...] | None = None

    def begin(self) -> None:
        """Remember the current state; only later changes are news."""
        self._known, self._asked_at = self._ask(), time.monotonic()

    def has_arrived(self) -> bool:
        """Return True if there is news; asks the pipeline database at most every LOOK_SECONDS."""
        if self._known is None or time.monotonic() < self._asked_at + LOOK_SECONDS:
            return False
        self._asked_at = time.monotonic()
        return self._ask() != self._known

    def _ask(self) -> tuple[Any, ...] | None:
        return self._log.execute(statement(_FOLDER, "partition_news")).fetchone()
