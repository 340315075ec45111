"""Plans passes. A pass is a range of events that are applied together; a transaction applies one or more passes.

The log shows only complete transactions (docs/guarantees.md, G3), so the last transaction of the log is complete, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from pipeline.errors import CursorExpiredError, NotFollowableError
from pipeline.followers.applying import snapshot_copy, table_versions
from pipeline.followers.applying.followed_tables import FollowedTables
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.log.page import OldestKeptSeq
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

BYTES = 16 * 2**20
"""The most bytes of records in one pass, as the log stores them: large values count compressed."""
_NO_BOUND, _NO_EPOCH = 2**63 - 1, 2**31 - 1
_NEVER = HistoryPlace(_NO_EPOCH, _NO_BOUND, 0)
_REASONS = {
    "skipped": "it stands for a transaction that the source could not send",
    "parked": "it stands for a change that could not be written to the log",
    "changed": "from there on the table has other columns, types or another key",
    "unknown": "it has other columns or another key than the table was copied with",
}


@dataclass(frozen=True)
class EpochGap:
    """An epoch before which the follower stops, because the log lacks earlier changes of these tables, and why."""

    epoch: int
    reason: str
    tables: str
    remedy: str


@dataclass(frozen=True)
class TableShare:
    """The part of a pass that belongs to one table. `only_new`: all of its events are ordinary inserts."""

    events: int
    only_new: bool


@dataclass(frozen=True)
class PlannedPass:
    """The events after `after`, up to `upto`.

    - `whole`: a transaction ends at `upto`; LSN and time are of that transaction.
    - `transactions`: the number of transactions that begin or continue in it; in a long pass, 2 means several.
    - `tables`: oids of the tables with changed rows. `truncates`: the seq and the table's oid of each truncate.
    - `is_long`: True if `LongPassPlanner` planned the pass; then `shares` has the share of each table, by oid.
    - `history_number`: of the relation history, when the pass was planned.
    """

    after: int
    upto: int
    whole: bool
    source_epoch: int
    commit_lsn: int | None
    committed_at: datetime
    transactions: int
    events: int
    tables: Sequence[int]
    truncates: Sequence[tuple[int, int]]
    history_number: int
    is_long: bool = False
    shares: Mapping[int, TableShare] = field(default_factory=dict)


@dataclass(frozen=True)
class _PassRow:
    """A row of the query that plans a pass."""

    upto: int | None
    whole: bool | None
    source_epoch: int | None
    commit_lsn: int | None
    committed_at: datetime | None
    transactions: int | None
    events: int
    tables: Sequence[int]
    truncate_seqs: Sequence[int]
    truncate_oids: Sequence[int]
    obstacle: str | None
    obstacle_seq: int | None
    obstacle_oid: int | None
    others_upto: int | None
    history_number: int


class PassPlanner:
    """Plans passes of one events table."""

    def __init__(
        self, log: Connection, source: uuid.UUID, events_table: EventsTable, events: int, gap: EpochGap | None = None
    ) -> None:
        """`events`: the most events in a pass. `gap`: stop before its epoch."""
        self._log, self._source, self._events_table, self._events = log, source, events_table, events
        self._gap = gap
        self._kept_from = OldestKeptSeq(events_table)
        self._composed: tuple[FollowedTables, str] | None = None

    def next(
        self, tables: FollowedTables, after: int, upto: int | None, *, continues: bool = False, single: bool = False
    ) -> PlannedPass | None:
        """Return the pass after a seq; None if no event follows.

        `upto`: the pass contains no transaction that begins after this seq. `continues`: a transaction is open, which
        the pass continues. `single`: the pass has only one transaction.
        Raises NotFollowableError if the next event cannot be applied.
        """
        if self._composed is None or self._composed[0] is not tables:
            self._composed = tables, self._compose(tables).as_string(None)
        bound = _NO_BOUND if upto is None else upto
        cursor = psycopg.RawCursor(self._log, row_factory=class_row(_PassRow))
        found = cursor.execute(self._composed[1], (after, bound, continues, single), prepare=True).fetchone()
        assert found is not None  # noqa: S101  one row, whatever is found
        if found.obstacle is not None:
            raise self._not_followable(tables, found)
        if found.others_upto is not None:  # only events of other sources were scanned
            return self.next(tables, found.others_upto, upto, continues=continues, single=single)
        if found.upto is None:
            return None
        return _pass(after, found)

    def _compose(self, tables: FollowedTables) -> sql.Composed:
        return sql.SQL(statement("followers.applying", "next_pass")).format(
            **table_parameters(tables, self._source),
            events=self._events_table.identifier,
            gap=end_epoch(self._gap),
            most=sql.Literal(self._events),
            bytes=sql.Literal(BYTES),
            after=sql.SQL("$1::bigint"),
            upto=sql.SQL("$2::bigint"),
            continues=sql.SQL("$3::boolean"),
            single=sql.SQL("$4::boolean"),
        )

    def _not_followable(self, tables: FollowedTables, found: _PassRow) -> NotFollowableError:
        obstacle, seq = found.obstacle or "", found.obstacle_seq or 0
        if obstacle == "gap" and (gap := self._gap) is not None:
            reason = f"epoch {gap.epoch} of the source begins there, and what changed before it is not in the log"
            said = f"the follower stops before seq {seq}: {reason}, of {gap.tables} ({gap.reason})"
            return NotFollowableError(said, "", seq, obstacle, gap.remedy)
        if obstacle == "skipped":
            return NotFollowableError(f"the follower stops before seq {seq}: {_REASONS[obstacle]}", "", seq, obstacle)
        table = tables[found.obstacle_oid or 0]
        if obstacle == "changed" and table.is_unknown:
            obstacle = "unknown"
        said = f"table {table} of the follower stops before seq {seq}: {_REASONS[obstacle]}"
        return NotFollowableError(said, str(table), seq, obstacle, oid=table.oid)

    def require_kept(self, after: int) -> None:
        """Raise CursorExpiredError unless retention has kept all events after this seq. Call it after reading them.

        That is safe, because retention records what it will drop before it drops anything.
        """
        floor = self._kept_from.read(self._log)
        if after + 1 < floor:
            raise CursorExpiredError(
                f"the log is kept from seq {floor} on, and the follower is at seq {after}: its tables have to be"
                " copied again",
                floor - 1,
            )


def end_epoch(gap: EpochGap | None) -> sql.Composable:
    """Return the epoch from which on nothing is applied."""
    return sql.Literal(gap.epoch if gap else _NO_EPOCH)


def table_parameters(tables: FollowedTables, source: uuid.UUID) -> dict[str, sql.Composable]:
    """Return the parts of a planning query that describe these tables."""
    places = [(table.oid, table.changes_at or _NEVER) for table in tables]
    return {
        "source": sql.Literal(source),
        "history_number": table_versions.history_number_sql(source),
        "oids": sql.Literal([oid for oid, _ in places]),
        "epochs": sql.Literal([place.epoch for _, place in places]),
        "lsns": sql.Literal([place.lsn for _, place in places]),
        "idxs": sql.Literal([place.idx for _, place in places]),
        "partitions": sql.Literal(tables.partitions),
        **_copies(tables),
    }


def _copies(tables: FollowedTables) -> dict[str, sql.Composable]:
    """Return the parts of the query that describe copies.

    A truncate of a partition has the partition's oid, so each partition gets the copy of its table, unless it was a
    separate table before and has its own copy.
    """
    copies = {table.oid: table.wanted.copy for table in tables}
    of_partitions = {oid: copies[table.oid] for table in tables for oid in table.partitions if oid not in copies}
    found = [(oid, copy) for oid, copy in {**copies, **of_partitions}.items() if copy is not None]
    names = ("(c.oid is not null)", "c.epoch", "c.lsn", "c.snapshot", "c.next_xid")
    return {
        "copied_oids": sql.Literal([oid for oid, _ in found]),
        "copied_epochs": sql.Literal([copy.source_epoch for _, copy in found]),
        "copied_lsns": sql.Literal([copy.lsn for _, copy in found]),
        "snapshots": sql.Literal([copy.snapshot for _, copy in found]),
        "in_copy": snapshot_copy.contains(*(sql.SQL(name) for name in names)),
    }


def _pass(after: int, found: _PassRow) -> PlannedPass:
    assert found.upto is not None  # noqa: S101  the caller has asked
    assert found.source_epoch is not None  # noqa: S101  a column that is never null
    assert found.committed_at is not None  # noqa: S101  likewise
    return PlannedPass(
        after,
        found.upto,
        bool(found.whole),
        found.source_epoch,
        found.commit_lsn,
        found.committed_at,
        found.transactions or 0,
        found.events,
        found.tables,
        tuple(zip(found.truncate_seqs, found.truncate_oids, strict=True)),
        found.history_number,
    )
