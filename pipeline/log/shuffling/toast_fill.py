"""Fill in unchanged TOASTed values, which the WAL lacks, from the last event of their row.

That event was filled in itself, so one event is enough. If it is unknown, or lacks the value, the column stays out of
`record` and is named in `unchanged_columns`: a value is never guessed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.log.shuffling import toast_batches
from pipeline.log.shuffling.toast_batches import RelationVersion, UnfilledRow
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_OR = sql.SQL("\n            union all\n")
_BEFORE_SEQ = sql.SQL(" and e.seq < w.seq")
_BEFORE = sql.SQL(" and (e.source_epoch, e.commit_lsn, e.commit_idx) < (%(epoch)s, w.commit_lsn, w.commit_idx)")
_SETTLED_TABLES = """\
select t.table_oid, t.settled_lsn from pipeline.snapshot_tables t
where t.source_id = %(source)s and t.epoch = %(epoch)s and t.settled_lsn is not null
"""
"""List tables whose rows were compared with the log in this epoch, and the LSN up to which their values may come from
an earlier epoch."""


@dataclass(frozen=True)
class RowSelection:
    """Staged rows for one events table, each with its seq: a query and its values."""

    table: EventsTable
    query: sql.Composable
    values: Mapping[str, Any]

    @property
    def rows(self) -> sql.Composable:
        """The query to select the rows from."""
        return sql.SQL("({})").format(self.query)

    @property
    def lacking(self) -> sql.Composable:
        """The query for the rows that lack unchanged values."""
        return sql.SQL("({})").format(sql.SQL(statement("log.shuffling", "unfilled_rows")).format(rows=self.rows))


class ValueFiller:
    """Inserts rows that lack unchanged values, in a transaction of the shuffler.

    All earlier events must be in the events tables already.
    """

    def __init__(self, connection: Connection, source: uuid.UUID) -> None:
        self._connection = connection
        self._source = source
        self._origins: dict[int, dict[str, Any]] = {}
        self._relations: dict[int, int] = {}
        self._tables: dict[int, int] = {}

    def fill(self, pieces: Sequence[RowSelection]) -> int:
        """Write those rows of one segment that lack values, in their order; returns how many were written."""
        found = sorted(
            ((row, number) for number, piece in enumerate(pieces) for row in self._find(piece)),
            key=lambda each: each[0].ordinal,
        )
        if not found:
            return 0
        self._learn({row.relation_id for row, _ in found}, pieces[0].values["epoch"])
        tables = self._searched()
        settled = self._settled(pieces[0].values["epoch"], tables)
        queries = [self._query(piece, tables) for piece in pieces]
        owners = {row.ordinal: number for row, number in found}
        written = 0
        for batch in toast_batches.batches((row for row, _ in found), self._relations):
            # If one table cannot be searched, the last event may be in it, so no value is known.
            origins = (
                [
                    {**self._origins[relation_id], "settled": settled.get(self._tables[relation_id])}
                    for relation_id in {row.relation_id for row in batch}
                ]
                if tables
                else []
            )
            for number in {owners[row.ordinal] for row in batch}:
                ordinals = [row.ordinal for row in batch if owners[row.ordinal] == number]
                values = {**pieces[number].values, "forms": Jsonb(origins), "ordinals": ordinals}
                written += self._connection.execute(queries[number], values).rowcount
        return written

    def _find(self, piece: RowSelection) -> list[UnfilledRow]:
        query = sql.SQL(statement("log.shuffling", "list_unfilled")).format(rows=piece.lacking)
        return queries.rows(self._connection, UnfilledRow, query, piece.values)

    def _searched(self) -> list[EventsTable]:
        """Return every events table that may have events of the rows; no table if one of them lacks its index."""
        found = self._connection.execute(
            statement("log.shuffling", "searched_tables"), {"source": self._source}
        ).fetchall()
        return [EventsTable.parse(name) for name, _ in found] if all(indexed for _, indexed in found) else []

    def _settled(self, epoch: int, tables: Sequence[EventsTable]) -> dict[int, int]:
        """Return the LSN from which on values of earlier epochs are valid, by table.

        With several events tables none are: retention may have emptied any of them first.
        """
        if not epoch or len(tables) != 1:
            return {}
        values = {"source": self._source, "epoch": epoch}
        return dict(self._connection.execute(_SETTLED_TABLES, values).fetchall())

    def _query(self, piece: RowSelection, tables: Sequence[EventsTable]) -> sql.Composed:
        """Return the query for the rows' last events; seqs can be compared only within one table."""
        events = sql.SQL(statement("log.shuffling", "fill_from_events"))
        sources: list[sql.Composable] = [events.format(events=piece.table.identifier, before=_BEFORE_SEQ)]
        sources += [events.format(events=table.identifier, before=_BEFORE) for table in tables if table != piece.table]
        sources.append(sql.SQL(statement("log.shuffling", "fill_from_known")))
        return sql.SQL(statement("log.shuffling", "fill_rows")).format(
            events=piece.table.identifier, rows=piece.lacking, sources=_OR.join(sources)
        )

    def _learn(self, ids: set[int], epoch: int) -> None:
        """Read relation versions that are not known here yet; a version never changes."""
        new = ids - self._origins.keys()
        if not new:
            return
        values = {"source": self._source, "epoch": epoch, "ids": list(new)}
        forms = [
            RelationVersion(row[0], row[1], row[2], row[3], row[4], row[5], row[6], (row[7], row[8]))
            for row in self._connection.execute(statement("log.shuffling", "relation_versions"), values)
        ]
        for oid, group in groupby(forms, lambda form: form.relation_oid):
            history = list(group)
            for at, form in enumerate(history):
                if form.id in new:
                    self._relations[form.id] = oid
                    self._tables[form.id] = form.table_oid
                    self._origins[form.id] = toast_batches.origin(history[: at + 1])
