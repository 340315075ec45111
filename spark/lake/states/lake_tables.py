"""Finds the tables of a lake as of a seq: those with changes, their names, and how far their changes go."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from lake.changes.files import ChangeFile, ChangeFiles
from lake.changes.writer import last_place
from lake.ledger import bigints
from lake.states import divided_tables
from lake.states.divided_tables import DivisionQuery
from lake.states.plan import FoldHistory, FullBackfill
from lake.storage import layout
from lake.storage.identity import Lake
from lake.storage.reading import dataset
from lake.tables import forms
from lake.tables.file_names import file_names
from lake.tables.forms import ReplicationPlace
from lake.tables.source_tables import LinkedTable, link_tables, owners

_BACKFILLS = """
    select b.source_id::text, b.epoch, b.table_oid, b.since_seqs::text, b.last_seq
    from pipeline.backfills b
    where b.state = 'complete' and b.kind <> 'differences' and b.condition is null
        and b.table_oid = any($1::text::bigint[]) and b.since_seqs ? $2 and coalesce(b.events_table, $2) = $2
    order by b.id desc
"""
_NAMES = "select distinct table_schema, table_name from pipeline.relations where table_oid <> 0"


class LakeTables:
    """Tables with one of these oids or names, and all tables that ever shared a name with them, as of `seq`.

    `datasets`: names of the lake, for files that do not name their table.
    """

    def __init__(self, lake: Lake, seq: int, oids: Collection[int], datasets: Collection[str] = ()) -> None:
        self._lake, self._seq = lake, seq
        self._files = ChangeFiles(lake.ledger, lake.id)
        found = forms.read_forms(lake.ledger, oids, self._named(datasets))
        self._file_names = file_names(found)
        self.tables = link_tables(found, forms.servers(lake.ledger))
        self._asked = [
            table
            for table in self.tables
            if not {*table.oids.values()}.isdisjoint(oids) or not {*table.datasets}.isdisjoint(datasets)
        ]
        newest = self._files.last(
            {oid for table in self.tables for oid in table.oids.values()},
            {dataset for table in self.tables for dataset in table.datasets},
            seq,
        )
        reached = ((table.root, self._reached(table, _of_table(table, newest))) for table in self.tables)
        self._places = {root: place for root, place in reached if place is not _NOWHERE}
        self._owners = owners(self.tables, self._places)
        self._backfills = self._read_backfills()
        self._divisions = divided_tables.divisions(lake, seq, list(self._divisible()))

    def shown(self) -> list[LinkedTable]:
        """Return the requested tables that own their name as of the seq."""
        named = [table.root for table in self._owners.values()]
        return [table for table in self._asked if table.root in named]

    def owner(self, dataset: str) -> LinkedTable | None:
        """Return the table that has this name; None if no table has it now."""
        return self._owners.get(dataset)

    def history(self, table: LinkedTable) -> FoldHistory:
        """Return the history of a table, for its fold."""
        division = self._divisions.get(table.root)
        whole_since = division.whole_since if division else None
        return FoldHistory(table, self._file_names, self._places[table.root], self._backfills_of(table), whole_since)

    def division_reason(self, table: LinkedTable) -> str | None:
        """Return the reason why this lake lacks changes of a table; None if it has all."""
        division = self._divisions.get(table.root)
        return division.reason if division else None

    def files(self, table: LinkedTable, after: int) -> list[ChangeFile]:
        """Return the files with changes of the table after that seq."""
        return self._files.of_tables(set(table.oids.values()), table.datasets, after, self._seq)

    def _named(self, datasets: Collection[str]) -> list[tuple[str, str]]:
        if not datasets:
            return []
        names = [(row["table_schema"], row["table_name"]) for row in self._lake.ledger.rows(_NAMES)]
        return [name for name in names if layout.dataset(*name) in datasets]

    def _reached(self, table: LinkedTable, newest: Iterable[ChangeFile]) -> ReplicationPlace | None:
        """Return the highest position of a table's changes up to the seq.

        The position is None if no change has one, and _NOWHERE if there is no change.
        `newest`: the newest files of the table, the newest first.
        """
        found: ReplicationPlace | None = _NOWHERE
        epochs = {(source, epoch): oid for (source, epoch), oid in table.oids.items()}
        numbers = {form.source_id: form.place.source for form in table.forms}
        for file in newest:
            whole = file.last_seq <= self._seq and file.last_lsn is not None
            if whole and epochs.get((str(file.source_id), file.source_epoch or 0)) != file.table_oid:
                continue
            place = (
                ReplicationPlace(
                    numbers[str(file.source_id)], file.source_epoch or 0, file.last_lsn or 0, file.last_idx or 0
                )
                if whole
                else self._read_place(file, table)
            )
            if place is _NOWHERE:
                continue
            if place is not None:
                return place if found in (None, _NOWHERE) else max(place, found)
            found = None
        return found

    def _read_place(self, file: ChangeFile, table: LinkedTable) -> ReplicationPlace | None:
        """Read the greatest place of a table's changes in a file. The result is that of `_reached`."""
        columns = ["seq", "source_epoch", "source_table_oid", "commit_lsn", "commit_idx", "event_metadata"]
        of_table = [(ds.field("source_epoch") == e) & (ds.field("source_table_oid") == oid) for e, oid in _pairs(table)]
        wanted = (ds.field("seq") <= self._seq) & reduce(or_, of_table)
        changes = dataset(self._lake.root / file.path).to_table(columns, filter=wanted)
        if not changes.num_rows:
            return _NOWHERE
        epoch = pc.max(changes.column("source_epoch")).as_py()
        place = last_place(changes.filter(pc.equal(changes.column("source_epoch"), epoch)))
        source = next(form.place.source for form in table.forms if file.source_id in (None, form.source_id))
        return ReplicationPlace(source, epoch, *place) if place else None

    def _read_backfills(self) -> Sequence[tuple[tuple[str, int, int], FullBackfill]]:
        oids = {oid for table in self._asked for oid in table.oids.values()}
        rows = self._lake.ledger.rows(_BACKFILLS, (bigints(oids), self._lake.events_table))
        return [(_table(row), _backfill(row, self._lake.events_table)) for row in rows]

    def _backfills_of(self, table: LinkedTable) -> list[FullBackfill]:
        return [
            backfill for (source, epoch, oid), backfill in self._backfills if table.oids.get((source, epoch)) == oid
        ]

    def _divisible(self) -> Iterator[DivisionQuery]:
        """Yield queries for the requested tables that have a form as of the seq."""
        for table in self._asked:
            form = table.form_at(self._places[table.root]) if table.root in self._places else None
            if form is not None:
                done = (backfill for backfill in self._backfills_of(table) if backfill.upto <= self._seq)
                yield DivisionQuery(table, form, max(done, key=lambda backfill: backfill.since, default=None))


def _of_table(table: LinkedTable, files: Iterable[ChangeFile]) -> list[ChangeFile]:
    oids, datasets = {*table.oids.values()}, {*table.datasets}
    return [file for file in files if (file.dataset in datasets if file.table_oid is None else file.table_oid in oids)]


def _pairs(table: LinkedTable) -> Iterable[tuple[int, int]]:
    return sorted({(epoch, oid) for (_, epoch), oid in table.oids.items()})


def _backfill(row: dict[str, Any], events_table: str) -> FullBackfill:
    others = json.loads(row["since_seqs"])
    since = others.pop(events_table)
    return FullBackfill(since, row["last_seq"] or since, others)


def _table(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["source_id"], row["epoch"], row["table_oid"]


_NOWHERE = ReplicationPlace(-1, -1, -1, -1)
