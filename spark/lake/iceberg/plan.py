"""Plans a commit: tables with new files, current states with a newer version, tables to drop."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lake.iceberg import names
from lake.iceberg.changed_table import FORM, STATE, UPTO_SEQ, TableChange
from lake.iceberg.ledger import CommitHead, IcebergLedger, IcebergTable
from lake.iceberg.names import Identifier
from lake.states.folders import StateFolders
from lake.states.plan import STATE as STATE_COLUMNS
from lake.states.plan import columns_of
from lake.storage import layout
from lake.storage.identity import Lake
from lake.tables import forms
from lake.tables.columns import NumberedForm, number_columns
from lake.tables.source_tables import link_tables

TableRoot = tuple[str, int, int]
PropertyLookup = Callable[[Identifier, str], str | None]
"""A function that reads a property of an Iceberg table; None if the table has no such property."""


@dataclass(frozen=True)
class PlannedChange:
    """A change of the Iceberg table for `version` of a dataset, or for `table_id` with state version `state_id`."""

    change: TableChange
    dataset: str
    version: int | None = None
    table_id: int | None = None
    state_id: int | None = None


@dataclass(frozen=True)
class CommitPlan:
    """All changes of a commit; `gone`: tables to drop."""

    planned: Sequence[PlannedChange] = ()
    gone: Sequence[Identifier] = field(default_factory=list)


@dataclass(frozen=True)
class CommitPlanner:
    """Plans a commit. `base`: the lake's location; `had`: reads a property that an Iceberg table has before the commit.

    Without `has_renames`, a table that was renamed becomes a new one.
    """

    lake: Lake
    ledger: IcebergLedger
    base: str
    head: CommitHead
    number: int
    had: PropertyLookup
    has_renames: bool = True

    def plan(self, behind: Collection[TableRoot], kept: CommitHead) -> CommitPlan:
        """Plan the commit.

        `behind`: tables whose state lacks changes, so that they cannot be as of the same seq as the others. `kept`: the
        oldest commit that readers may still read.
        """
        known = self.ledger.tables()
        states = list(self._states({table.table_id: table for table in known if table.table_id is not None}, behind))
        shown = {planned.table_id for planned, _ in states}
        hidden = self.ledger.hidden() | {table for table in self._behind(behind) if table not in shown}
        planned = [*self._changes(known), *(planned for planned, _ in states)]
        taken = {each.change.identifier for each in planned}
        leaving = {
            table.identifier
            for table in known
            if table.table_id in hidden or (not self.has_renames and table.table_id in shown)
        }
        gone = sorted(leaving - taken)
        taken |= {each.change.was for each in planned if each.change.was} | {*gone}
        planned += [
            _expiry(table)
            for table in known
            if table.oldest < table.newest <= kept.number and table.identifier not in taken
        ]
        return CommitPlan(planned, gone)

    def _changes(self, known: Sequence[IcebergTable]) -> Iterator[PlannedChange]:
        existing = {(table.dataset, table.version): table.identifier for table in known if table.version is not None}
        files: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for file in self.ledger.files(self.head.upto_seq):
            files.setdefault((file["dataset"], file["version"]), []).append(file)
        columns = self.ledger.columns({dataset for dataset, _ in files}) if files else {}
        upto = self.lake.ledger.exported_upto(self.lake.id)
        for (dataset, version), new in files.items():
            identifier = names.of_changes(dataset, version)
            was = existing.get((dataset, version))
            after = int(self.had(was, UPTO_SEQ) or 0) if was else 0
            added = [f"{self.base}/{file['path']}" for file in new if file["upto_seq"] > after and file["rows"]]
            change = TableChange(
                identifier,
                was,
                self._location(identifier),
                columns[dataset, version],
                added=added,
                properties={UPTO_SEQ: str(upto)},
            )
            yield PlannedChange(change, dataset, version=version)

    def _states(
        self, known: Mapping[int | None, IcebergTable], behind: Collection[TableRoot]
    ) -> Iterator[tuple[PlannedChange, TableRoot]]:
        for row in self.ledger.states():
            root = row["source_id"], row["source_epoch"], row["table_oid"]
            if root in behind:
                continue
            identifier = names.of_current(row["dataset"])
            was = known[row["table_id"]].identifier if row["table_id"] in known else None
            was = was if self.has_renames or was == identifier else None
            form = int(self.had(was, FORM) or 0) if was else 0
            folder = f"{self.base}/{self._folder(row)}"
            change = TableChange(
                identifier,
                was,
                self._location(identifier),
                {**STATE_COLUMNS, **json.loads(row["columns"])},
                same=same_columns(self.lake, root, form, row["form_id"]) if form else None,
                added=[f"{folder}/{file['name']}" for file in json.loads(row["files"]) if file["rows"]],
                is_whole=True,
                properties={STATE: str(row["state_id"]), FORM: str(row["form_id"])},
            )
            yield PlannedChange(change, row["dataset"], table_id=row["table_id"], state_id=row["state_id"]), root

    def _folder(self, row: Mapping[str, Any]) -> str:
        """Return the folder to which the names of a version's files are relative."""
        if not isinstance(self.lake.root, Path):
            return layout.CURRENT
        return str(StateFolders(self.lake.root, row["folder"]).version(row["seq"]).relative_to(self.lake.root))

    def _behind(self, behind: Collection[TableRoot]) -> set[int]:
        if not behind:
            return set()
        rows = self.lake.ledger.rows(
            "select id, source_id::text, source_epoch, table_oid from pipeline.export_tables"
            " where lake_id = $1::text::uuid",
            (str(self.lake.id),),
        )
        return {row["id"] for row in rows if (row["source_id"], row["source_epoch"], row["table_oid"]) in behind}

    def _location(self, identifier: Identifier) -> str:
        return f"{self.base}/{names.location(identifier, f'{self.number}-{uuid.uuid4().hex[:8]}')}"


def _expiry(table: IcebergTable) -> PlannedChange:
    change = TableChange(table.identifier, table.identifier, "")
    return PlannedChange(change, table.dataset, table.version, table.table_id, table.state_id)


def same_columns(lake: Lake, root: tuple[str, int, int], before: int, now: int) -> Mapping[str, str] | None:
    """Return, by each column's name in the form `now` (an id of pipeline.relations), its name in the form `before`.

    Return None if the history does not tell; then columns with the same name are the same.
    """
    if before == now:
        return None
    found = forms.read_forms(lake.ledger, [root[2]], [])
    for table in link_tables(found, forms.servers(lake.ledger)):
        if table.root == root:
            numbered = {form.form.id: form for form in number_columns(table.forms)}
            if before in numbered and now in numbered:
                return _same(numbered[before], numbered[now])
    return None


def _same(before: NumberedForm, now: NumberedForm) -> dict[str, str]:
    had = {column.number: column.name for column in columns_of(before)}
    own = {column.name: had[column.number] for column in columns_of(now) if column.number in had}
    return {**{name: name for name in STATE_COLUMNS}, **own}
