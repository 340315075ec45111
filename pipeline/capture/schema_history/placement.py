"""Finds which columns of the catalog a Relation message has, if the catalog is later than the message. Pure.

The source sends columns in the order of their attnums, without dropped ones. A new column gets the next attnum, and
pg_attribute keeps dropped columns. Often these rules leave only one placement of a message. Each placement has a
cost: how many columns must have changed their names or types for it. If one costs clearly less than all others, it is
taken. That may be wrong if a name has gone to another column, both between two changes of rows and while the worker
was behind. A simulation in the test shows that the placement is never wrong if each name is used once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pipeline.capture.schema_history.catalog_table import CatalogColumn, CatalogTable
from pipeline.capture.schema_history.versions import HistoryVersion, PublishedColumn
from pipeline.wal.messages import RelationColumn, RelationMessage

_IMPOSSIBLE = 1 << 30
_DOUBT = 1
"""A placement that costs this much more than the best may be the true one: a column is renamed, and later dropped."""


class _Place(NamedTuple):
    """A column of the catalog. `before`: the same column in the previous version.

    `must`: the column existed for the change, and was published. `optional`: it may have been left out although it
    existed.
    """

    now: CatalogColumn
    before: PublishedColumn | None
    must: bool
    optional: bool


def place_columns(
    relation: RelationMessage, table: CatalogTable | None, previous: HistoryVersion | None = None
) -> list[int | None]:
    """Return the attnums of the message's columns; None for a column whose attnum is not certain.

    `table`: as the catalog has it; None if it was dropped. `previous`: the last known version before the message.
    """
    columns = relation.columns
    if table is None:
        return [None] * len(columns)
    places = _places(table, previous)
    if not any(place.optional for place in places):  # only the newest columns can be missing
        return _in_order(columns, places) or _settled(columns, table)
    costs = _costs(columns, places)
    first, rest = _cheapest(costs, places)
    best = rest[0][0]
    if best >= _IMPOSSIBLE:
        return _settled(columns, table)
    found: list[int | None] = []
    for number in range(len(columns)):
        fitting = [
            place.now.attnum
            for at, place in enumerate(places)
            if first[number][at] + costs[number][at] + rest[number + 1][at + 1] <= best + _DOUBT
        ]
        found.append(fitting[0] if len(fitting) == 1 else None)
    return found


def _places(table: CatalogTable, previous: HistoryVersion | None) -> list[_Place]:
    """Return the columns that the message may have, in order of attnum."""
    known = {column.attnum: column for column in (previous.columns if previous else ())}
    known_upto = max((attnum or 0 for attnum in known), default=0) if None not in known else 0
    unchanged = _is_published_as_before(table, previous)
    whole = unchanged and not table.column_list
    found = []
    for column in table.columns:
        before = known.get(column.attnum)
        was_absent = before is None and column.attnum <= known_upto
        if column.generated == "v" or (column.dropped and (column.settled or was_absent)):
            continue
        if unchanged and table.column_list and before is None and known:  # a list never grows
            continue
        optional = column.dropped or bool(column.generated) or was_absent or not unchanged or not (whole or before)
        found.append(_Place(column, before, not optional and (column.settled or before is not None), optional))
    return found


def _is_published_as_before(table: CatalogTable, previous: HistoryVersion | None) -> bool:
    """True if no publication can have got another column list since: that takes another row in its catalog."""
    known = set((previous.memberships if previous else None) or ())
    return table.publication_settled or known.issuperset(table.published)


def _costs(columns: Sequence[RelationColumn], places: Sequence[_Place]) -> list[list[int]]:
    """Return the cost of each column of the message at each place."""
    now = Counter((place.now.name, place.now.type_oid) for place in places if not place.now.dropped)
    before = Counter((place.before.name, place.before.type_oid) for place in places if place.before)
    return [[_cost(column, place, now, before) for place in places] for column in columns]


def _cost(
    column: RelationColumn, place: _Place, now: Counter[tuple[str, int]], before: Counter[tuple[str, int]]
) -> int:
    """Return how many names or types must have changed, and how many names must have gone to another column."""
    if not _may_be(column, place):
        return _IMPOSSIBLE
    form = column.name, column.type_oid
    its_now = None if place.now.dropped else (place.now.name, place.now.type_oid)
    its_before = (place.before.name, place.before.type_oid) if place.before else None
    return sum(
        (its is not None) + others[form] for its, others in ((its_now, now), (its_before, before)) if its != form
    )


def _may_be(column: RelationColumn, place: _Place) -> bool:
    """False if the catalog's column has been another one for all that the slot may still send."""
    return not place.now.settled or (place.now.name, place.now.type_oid) == (column.name, column.type_oid)


def _in_order(columns: Sequence[RelationColumn], places: Sequence[_Place]) -> list[int | None] | None:
    """Place the columns one after the other; None if that is impossible."""
    if len(columns) > len(places) or any(place.must for place in places[len(columns) :]):
        return None
    first = places[: len(columns)]
    fits = all(_may_be(column, place) for column, place in zip(columns, first, strict=True))
    return [place.now.attnum for place in first] if fits else None


def _settled(columns: Sequence[RelationColumn], table: CatalogTable) -> list[int | None]:
    """Return attnums only of columns that have been the same for all that the slot may still send."""
    certain = {(column.name, column.type_oid): column.attnum for column in table.live if column.settled}
    return [certain.get((column.name, column.type_oid)) for column in columns]


def _cheapest(costs: Sequence[Sequence[int]], places: Sequence[_Place]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the least cost of placing the first columns on the first places, and the others on the other places."""
    columns, ends = len(costs), len(places)
    first = [[_IMPOSSIBLE] * (ends + 1) for _ in range(columns + 1)]
    rest = [[_IMPOSSIBLE] * (ends + 1) for _ in range(columns + 1)]
    first[0][0] = rest[columns][ends] = 0

    def left_out(place: _Place, *, is_beyond: bool) -> int:
        return 0 if place.optional or (is_beyond and not place.must) else _IMPOSSIBLE

    for number in range(columns + 1):
        for at, place in enumerate(places):
            without = left_out(place, is_beyond=number == columns)
            taken = first[number - 1][at] + costs[number - 1][at] if number else _IMPOSSIBLE
            first[number][at + 1] = min(first[number][at] + without, taken, _IMPOSSIBLE)
    for number in reversed(range(columns + 1)):
        for at in reversed(range(ends)):
            without = left_out(places[at], is_beyond=number == columns)
            taken = costs[number][at] + rest[number + 1][at + 1] if number < columns else _IMPOSSIBLE
            rest[number][at] = min(rest[number][at + 1] + without, taken, _IMPOSSIBLE)
    return first, rest
