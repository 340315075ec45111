"""Which columns of a table's state are those of its state before, whatever they were called."""

from __future__ import annotations

from collections.abc import Mapping

from lake.states.plan import STATE, columns_of
from lake.storage.identity import Lake
from lake.tables import forms
from lake.tables.columns import Numbered, number
from lake.tables.source_tables import link


def same_columns(lake: Lake, root: tuple[str, int, int], before: int, now: int) -> Mapping[str, str] | None:
    """By name in the form `now` (a row of pipeline.relations): the name in the form `before`.

    None where the history does not tell; then a column is the one of its name.
    """
    if before == now:
        return None
    found = forms.read(lake.ledger, [root[2]], [])
    for table in link(found, forms.servers(lake.ledger)):
        if table.root == root:
            numbered = {form.form.id: form for form in number(table.forms)}
            if before in numbered and now in numbered:
                return _same(numbered[before], numbered[now])
    return None


def _same(before: Numbered, now: Numbered) -> dict[str, str]:
    had = {column.number: column.name for column in columns_of(before)}
    own = {column.name: had[column.number] for column in columns_of(now) if column.number in had}
    return {**{name: name for name in STATE}, **own}
