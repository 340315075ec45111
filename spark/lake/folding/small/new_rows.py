"""Composes the rows of a fold from its changes and the rows before: it finds the place of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake.folding.small.log import ChangeLog
from lake.folding.small.rows import FoldRows, join_rows, rows_of_changes
from lake.folding.small.steps import GONE, KeySteps, RowHolder
from lake.states.plan import StateColumn
from lake.states.schema_cast import column


@dataclass(frozen=True)
class NewRows:
    """New rows. Row n is the row at index `places[n]` of `held`, except for the columns in `instead[n]`.

    `instead[n]`: number of a column → index in `held` of the row with its value; None: the log never had the value.
    """

    held: FoldRows
    places: Sequence[int]
    instead: Mapping[int, Mapping[int, int | None]]


def new_rows(log: ChangeLog, steps: KeySteps, before: FoldRows, columns: Sequence[StateColumn], most: int) -> NewRows:
    """Return the changes' live rows, then the rows of `before` that no change names. Raises TableTooLargeError."""
    live = [change for change in steps.last.values() if change != GONE]
    wanted = {each.number for each in columns}
    holders = {
        change: {number: steps.holder(change, number) for number in sorted(left_out & wanted, key=column)}
        for change in live
        if (left_out := steps.omitted.get(change))
    }
    suppliers = {at for found in holders.values() for at in found.values() if isinstance(at, int) and at != GONE}
    changed, places = rows_of_changes(log, sorted(suppliers.union(live)), columns, most)
    first = changed.table.num_rows
    kept = _places_of_keys(holders, before, first)

    def place(held: RowHolder) -> int | None:
        if isinstance(held, int):
            return places.get(held)
        return kept.get(held) if held is not None else None

    instead = {
        number: {name: place(at) for name, at in holders[change].items()}
        for number, change in enumerate(live)
        if change in holders
    }
    named = pc.is_in(before.table.column("record_pk"), value_set=pa.array(list(steps.last), pa.string()))
    stay = pc.add(pc.indices_nonzero(pc.invert(named)).cast(pa.int64()), first).to_pylist()
    return NewRows(join_rows([changed, before], columns), [*(places[change] for change in live), *stay], instead)


def _places_of_keys(holders: Mapping[int, Mapping[int, RowHolder]], before: FoldRows, first: int) -> dict[str, int]:
    """Return the places of the rows before that supply values, by their keys."""
    keys = list({at for found in holders.values() for at in found.values() if isinstance(at, str)})
    found = pc.index_in(pa.array(keys, pa.string()), value_set=before.table.column("record_pk"))
    return {key: first + place for key, place in zip(keys, found.to_pylist(), strict=True) if place is not None}
