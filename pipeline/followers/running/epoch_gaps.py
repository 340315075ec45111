"""Finds gaps: epochs of the source before which changes were made that the log lacks, so a follower must stop."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.errors import DatabaseUnavailableError
from pipeline.followers.applying.passes import EpochGap
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.registry import RegisteredFollower
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_FOLDER = "followers.running"
_NAMED = 3
"""At most this many tables are named in a message."""


@dataclass(frozen=True)
class _Crossing:
    """A table at the beginning of an epoch.

    `compared`: it is compared with the log in that epoch; `pending`: the server will decide that soon.
    """

    epoch: int
    reason: str
    started_at: datetime
    table_oid: int
    keyed: bool
    compared: bool
    pending: bool


@dataclass(frozen=True)
class LogComparison:
    """A comparison of a table with the log since this epoch began.

    `right_from`: the seq from which on the log has all rows of the table; None: the comparison has not ended.
    """

    table_oid: int
    epoch: int
    right_from: int | None


def find_unknown_deletes(
    log: Connection, registration: RegisteredFollower, copies: Mapping[int, SnapshotCopy | None]
) -> list[int]:
    """Return oids of tables that must be copied again, because the log does not know rows deleted in a gap.

    Tables that were copied after the gap are left out. `copies`: by oid.
    """
    oids = [each.table_oid for each in registration.table_states]
    values = {"source": registration.source_id, "since": registration.made_at, "oids": oids}
    epochs = log.execute(statement(_FOLDER, "unknown_deletes"), values).fetchall()
    return [oid for oid, epoch in epochs if (copy := copies.get(oid)) is None or copy.source_epoch < epoch]


def find_first(
    log: Connection,
    registration: RegisteredFollower,
    names: Mapping[int, str],
    here: FollowerPosition,
    copies: Mapping[int, SnapshotCopy | None],
) -> EpochGap | None:
    """Return the first gap after the position that the follower must not cross; None if there is none.

    `names`, `copies`: of its tables, by oid. Raises DatabaseUnavailableError if the server has yet to decide what it
    compares.
    """
    values = {"source": registration.source_id, "epoch": here.source_epoch, "oids": list(names)}
    crossings = queries.rows(log, _Crossing, statement(_FOLDER, "epoch_gaps"), values)
    lacking = [each for each in crossings if not _is_crossed(each, registration, here, copies.get(each.table_oid))]
    if not lacking:
        return None
    epoch = lacking[0].epoch
    of_first = [each for each in lacking if each.epoch == epoch]
    if of_first[0].pending:
        raise DatabaseUnavailableError(
            f"the server is about to compare tables with the log, since epoch {epoch} of the source began"
        )
    keyed = [names[each.table_oid] for each in of_first if each.keyed]
    others = [names[each.table_oid] for each in of_first if not each.keyed]
    remedy = _resync(registration, keyed + others) if others else _compare(keyed)
    return EpochGap(epoch, of_first[0].reason, _first_names(keyed + others), remedy)


def _is_crossed(
    each: _Crossing, registration: RegisteredFollower, here: FollowerPosition, copy: SnapshotCopy | None
) -> bool:
    """Return True if a table has the changes made before the epoch, or will get them from the log."""
    if copy is not None and copy.source_epoch >= each.epoch:
        return True
    declared = (
        registration.copy_mode == "none"
        and here.seq == registration.made_seq
        and each.started_at <= registration.made_at
    )
    return declared or (each.compared and each.keyed)


def _resync(registration: RegisteredFollower, names: list[str]) -> str:
    """Return the remedy if a table has no key: a comparison cannot find its deleted rows."""
    listed = " ".join(map(shlex.quote, names)) if len(names) <= _NAMED else "'*'"
    return f"copy these tables again: `pipeline followers resync {registration.name} {listed}`"


def _compare(keyed: list[str]) -> str:
    commands = ", ".join(f"`pipeline backfill start {table} --differences`" for table in keyed[:_NAMED])
    return f"compare these tables with the log, then the follower continues by itself: {commands}"


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def find_comparisons(log: Connection, source: uuid.UUID) -> dict[int, LogComparison]:
    """Return the comparisons of this source by the table's oid."""
    found = queries.rows(log, LogComparison, statement(_FOLDER, "compared_tables"), {"source": source})
    return {each.table_oid: each for each in found}
