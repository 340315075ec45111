"""Which oids are one table, and what it was called and had as columns at each place. Pure.

In one epoch a table is its oid, whatever it is called. In the next epoch it is the same oid if the server is the same,
and the table of the same name if the server is another one, where oids mean other tables.
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
    """One table. `oids`: which it is in each epoch that has forms of it; `forms`: in the order of their places."""

    oids: dict[EpochKey, int]
    forms: list[LakeTableForm] = field(default_factory=list)

    @property
    def root(self) -> tuple[str, int, int]:
        """Source, epoch and oid by which the ledger knows it: those of its first form."""
        first = self.forms[0]
        return first.source_id, first.place.epoch, first.table_oid

    @property
    def datasets(self) -> list[str]:
        """All that it was called."""
        return sorted({form.dataset for form in self.forms})

    def form_at(self, place: ReplicationPlace | None) -> LakeTableForm | None:
        """The form that it has at a place; None: before its first. `place` None: the first form, for older changes."""
        if place is None:
            return self.forms[0]
        begun = [form for form in self.forms if form.place <= place]
        return begun[-1] if begun else None


def link_tables(forms: Iterable[LakeTableForm], servers: Mapping[EpochKey, SourceServer]) -> list[LinkedTable]:
    """The tables that these forms are of; `forms` in the order of their places."""
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
            table = now.get(form.table_oid) or known.take(form)
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
    """Tables of the epochs before, each of which becomes one table at most."""

    def __init__(self, by_oid: Mapping[int, LinkedTable], tables: Sequence[LinkedTable], *, restored: bool) -> None:
        self._by_oid = dict(by_oid)
        self._restored = restored
        self._by_name: dict[tuple[str, str], LinkedTable] = {}
        for table in sorted(tables, key=lambda table: table.forms[-1].place):
            self._by_name[_name(table.forms[-1])] = table

    def take(self, form: LakeTableForm) -> LinkedTable | None:
        """The one that a table with this first form is.

        After a restore, an oid may have been given to another table: then the name decides, if a table has it.
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
    """Which table each dataset is in the end, by the place up to which the changes of each go (by its root).

    Where two were last known by one name, it is that of the later one: the other was dropped, or renamed since.
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
    """From which place on it is called as in that form."""
    since = form.place
    for earlier in reversed(table.forms[: table.forms.index(form)]):
        if earlier.dataset != form.dataset:
            break
        since = earlier.place
    return since


def _name(form: LakeTableForm) -> tuple[str, str]:
    return form.schema, form.name
