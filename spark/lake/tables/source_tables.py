"""Finds the oids that are one table, and the names and columns that the table had at each place. Pure.

In one epoch, a table is its oid, whatever its name. In the next epoch, a table keeps its oid if the server is the same.
On another server, oids mean other tables, so the table is the one with the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from lake.tables.forms import LakeTableForm, ReplicationPlace, SourceServer

EpochKey = tuple[str, int]
"""Source and epoch."""


@dataclass
class LinkedTable:
    """One table. `oids`: its oid in each epoch that has forms of it; `forms`: in the order of their places."""

    oids: dict[EpochKey, int]
    forms: list[LakeTableForm] = field(default_factory=list)

    @property
    def root(self) -> tuple[str, int, int]:
        """Source, epoch and oid by which the ledger knows the table: those of its first form."""
        first = self.forms[0]
        return first.source_id, first.place.epoch, first.table_oid

    @property
    def datasets(self) -> list[str]:
        """All datasets that the table had, by its names."""
        return sorted({form.dataset for form in self.forms})

    def form_at(self, place: ReplicationPlace | None) -> LakeTableForm | None:
        """Return the form at a place; None before the first form. `place` None: the first form, for older changes."""
        if place is None:
            return self.forms[0]
        begun = [form for form in self.forms if form.place <= place]
        return begun[-1] if begun else None


def link_tables(forms: Iterable[LakeTableForm], servers: Mapping[EpochKey, SourceServer]) -> list[LinkedTable]:
    """Return the tables of these forms, which are in the order of their places."""
    tables: list[LinkedTable] = []
    before: SourceServer | None = None
    current: dict[int, LinkedTable] = {}
    for epoch, group in groupby(forms, key=lambda form: (form.source_id, form.place.epoch)):
        server = servers.get(epoch)
        same = before is not None and server is not None and before.system_identifier == server.system_identifier
        restored = same and before is not None and server is not None and before.timeline != server.timeline
        known = _KnownTables(current if same else {}, tables, restored=restored)
        now: dict[int, LinkedTable] = {}
        for form in group:
            table = now.get(form.table_oid) or known.take_continued(form)
            if table is None:
                table = LinkedTable({})
                tables.append(table)
            now[form.table_oid] = table
            table.oids[epoch] = form.table_oid
            table.forms.append(form)
        current = {**current, **now} if same else now
        before = server
    return tables


class _KnownTables:
    """Tables of earlier epochs, each of which can continue as at most one table."""

    def __init__(self, by_oid: Mapping[int, LinkedTable], tables: Sequence[LinkedTable], *, restored: bool) -> None:
        self._by_oid = dict(by_oid)
        self._restored = restored
        self._by_name: dict[tuple[str, str], LinkedTable] = {}
        for table in sorted(tables, key=lambda table: table.forms[-1].place):
            self._by_name[_name(table.forms[-1])] = table

    def take_continued(self, form: LakeTableForm) -> LinkedTable | None:
        """Find the known table that continues with this form, and remove it from the known ones; None if none does.

        After a restore, another table may have the oid. Then the name decides, if a known table has it.
        """
        same_oid, same_name = self._by_oid.get(form.table_oid), self._by_name.get(_name(form))
        found = same_oid or same_name
        if self._restored and same_name is not None:
            found = same_name
        if found is not None:
            self._by_oid = {oid: table for oid, table in self._by_oid.items() if table is not found}
            self._by_name = {name: table for name, table in self._by_name.items() if table is not found}
        return found


def owners(
    tables: Iterable[LinkedTable], places: Mapping[tuple[str, int, int], ReplicationPlace | None]
) -> dict[str, LinkedTable]:
    """Return the table of each dataset, as of the last position of each table's changes.

    `places`: these positions, by the table's root.

    If two tables were last known by one name, the table that got the name later has it: the other was dropped or
    renamed.
    """
    found: dict[str, tuple[ReplicationPlace, LinkedTable]] = {}
    for table in tables:
        if table.root not in places:
            continue
        form = table.form_at(places[table.root])
        if form is None:
            continue
        since = _called_since(table, form)
        if form.dataset not in found or since > found[form.dataset][0]:
            found[form.dataset] = since, table
    return {dataset: table for dataset, (_, table) in found.items()}


def _called_since(table: LinkedTable, form: LakeTableForm) -> ReplicationPlace:
    """Return the place from which on the table has the name of that form."""
    since = form.place
    for earlier in reversed(table.forms[: table.forms.index(form)]):
        if earlier.dataset != form.dataset:
            break
        since = earlier.place
    return since


def _name(form: LakeTableForm) -> tuple[str, str]:
    return form.schema, form.name
