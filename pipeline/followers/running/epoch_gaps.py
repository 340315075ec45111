"""Where the source's history restarted, and what was changed between is not in the log: a follower would miss it."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.errors import DatabaseUnavailableError
from pipeline.followers.applying.copied import Copied
from pipeline.followers.applying.passes import Gap
from pipeline.followers.applying.position import Position
from pipeline.followers.registry import Follower
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.running"
_NAMED = 3
"""So many tables are named."""


@dataclass(frozen=True)
class _Crossing:
    """A table at the beginning of an epoch."""

    epoch: int
    reason: str
    started_at: datetime
    table_oid: int
    keyed: bool
    compared: bool
    pending: bool


@dataclass(frozen=True)
class Compared:
    """A table that is compared with the log, or was, since this epoch began. `right_from`: a seq; None: not yet."""

    table_oid: int
    epoch: int
    right_from: int | None


def unknown(log: Connection, found: Follower, copies: Mapping[int, Copied | None]) -> list[int]:
    """Tables, by oid, that have to be copied anew after a gap, since the log cannot say which of their rows are gone.

    Not those that were copied after it. `copies`: by oid.
    """
    oids = [each.table_oid for each in found.table_states]
    values = {"source": found.source_id, "since": found.made_at, "oids": oids}
    epochs = log.execute(statement(_ROOM, "unknown_deletes"), values).fetchall()
    return [oid for oid, epoch in epochs if (copy := copies.get(oid)) is None or copy.source_epoch < epoch]


def first(
    log: Connection, found: Follower, names: Mapping[int, str], here: Position, copies: Mapping[int, Copied | None]
) -> Gap | None:
    """Before which epoch it has to stop, since a table lacks what comes between; None where it may go on.

    `names`, `copies`: of its tables, by oid. Raises DatabaseUnavailableError where it is not known yet which of them
    are compared.
    """
    values = {"source": found.source_id, "epoch": here.source_epoch, "oids": list(names)}
    crossings = queries.rows(log, _Crossing, statement(_ROOM, "epoch_gaps"), values)
    lacking = [each for each in crossings if not _is_crossed(each, found, here, copies.get(each.table_oid))]
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
    remedy = _resync(found, keyed + others) if others else _compare(keyed)
    return Gap(epoch, of_first[0].reason, _some(keyed + others), remedy)


def _is_crossed(each: _Crossing, found: Follower, here: Position, copy: Copied | None) -> bool:
    """Whether a table has what was changed before the epoch, or will have it from the log."""
    if copy is not None and copy.source_epoch >= each.epoch:
        return True
    declared = found.copy == "none" and here.seq == found.made_seq and each.started_at <= found.made_at
    return declared or (each.compared and each.keyed)


def _resync(found: Follower, names: list[str]) -> str:
    """A comparison does not tell which rows of a table without a key were deleted."""
    listed = " ".join(map(shlex.quote, names)) if len(names) <= _NAMED else "'*'"
    return f"copy anew what lacks something: `pipeline followers resync {found.name} {listed}`"


def _compare(keyed: list[str]) -> str:
    commands = ", ".join(f"`pipeline backfill start {table} --differences`" for table in keyed[:_NAMED])
    return f"compare with the log what it lacks, then it goes on by itself: {commands}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def compared(log: Connection, source: uuid.UUID) -> dict[int, Compared]:
    """Those of this source, by the table's oid."""
    found = queries.rows(log, Compared, statement(_ROOM, "compared_tables"), {"source": source})
    return {each.table_oid: each for each in found}
