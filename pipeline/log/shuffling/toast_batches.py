"""Group rows that lack unchanged values into batches, and find where the log has those values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Place = tuple[int, int]
"""A place in the log: commit_lsn and commit_idx."""


@dataclass(frozen=True)
class UnfilledRow:
    """A staged row that lacks `columns`. `known_pk`: the key under which the log has the row's last event, if any."""

    ordinal: int
    relation_id: int
    known_pk: str | None
    record_pk: str
    columns: list[str]

    def leaves_alone(self, later: UnfilledRow) -> bool:
        """Return True if `later`, of the same row, finds the same values before this change as after it."""
        return (
            self.known_pk == self.record_pk
            and self.relation_id == later.relation_id
            and set(later.columns) <= set(self.columns)
        )


def batches(rows: Iterable[UnfilledRow], relations: dict[int, int]) -> Iterator[list[UnfilledRow]]:
    """Yield the rows in order, in batches in which no row needs values of another. `relations`: oid by relation_id."""
    batch: list[UnfilledRow] = []
    last: dict[tuple[int, str], UnfilledRow] = {}
    for row in rows:
        oid = relations[row.relation_id]
        before = None if row.known_pk is None else last.get((oid, row.known_pk))
        if before is not None and not before.leaves_alone(row):
            yield batch
            batch, last = [], {}
        batch.append(row)
        last[oid, row.record_pk] = row
    if batch:
        yield batch


@dataclass(frozen=True)
class RelationVersion:
    """A version of a relation, which holds from `since` on."""

    id: int
    relation_oid: int
    table_oid: int
    key_columns: list[str]
    columns: list[dict[str, Any]]
    unique_in_root: bool | None
    memberships: list[int] | None
    since: Place

    @property
    def is_root(self) -> bool:
        """True if the relation is not a partition."""
        return self.relation_oid == self.table_oid

    @property
    def key(self) -> list[object]:
        """The key by column numbers, independent of names; by names where the history has no numbers."""
        numbers = {column["name"]: column.get("attnum") for column in self.columns}
        return [name if numbers.get(name) is None else numbers[name] for name in self.key_columns]

    def names(self, column: dict[str, Any]) -> list[dict[str, Any]]:
        """The names under which the log has values of this column, each with its first place."""
        here = {"name": column["name"], "lsn": self.since[0], "idx": self.since[1]}
        return column.get("names") or [here]


def origin(history: Sequence[RelationVersion], void: Place = (0, 0)) -> dict[str, Any]:
    """Find the rows of a relation's last version in the log: table oids with first places, and names of its columns.

    `void`: nothing before that place may be used.

    Events of a partition are found under its root's oid, next to those of other partitions. A key is in one of them at
    a time; so they are its own from where it joined on, and those under its own oid are from before that.
    """
    form = history[-1]
    names = {column["name"]: form.names(column) for column in form.columns}
    places = []
    if form.key_columns:
        since = max(
            [void, _first(_stretch(history, _same_rows)), *(_known(names.get(k, [])) for k in form.key_columns)]
        )
        for stretch in _homes(history):
            lsn, idx = max(since, _first(stretch))
            places.append({"oid": stretch[-1].table_oid, "lsn": lsn, "idx": idx})
    return {"id": form.id, "places": places, "names": names}


def _homes(history: Sequence[RelationVersion]) -> list[list[RelationVersion]]:
    """Return the last versions that belong to one table, and for a partition those of its time as a separate table."""
    last = history[-1]
    if last.is_root:
        return [_stretch(history, _same_table)]
    if not last.unique_in_root:
        return []
    found = _stretch(history, _same_table)
    before = history[: -len(found)]
    return [found, _stretch(before, _same_table)] if before and before[-1].is_root else [found]


def _same_rows(before: RelationVersion, after: RelationVersion) -> bool:
    """Return True if a key identified the same row in both, and no update in between was unpublished."""
    published = set(before.memberships or ()) & set(after.memberships or ())
    return before.key == after.key and bool(published)


def _same_table(before: RelationVersion, after: RelationVersion) -> bool:
    return before.table_oid == after.table_oid and bool(before.is_root or before.unique_in_root)


def _stretch(
    history: Sequence[RelationVersion], same: Callable[[RelationVersion, RelationVersion], bool]
) -> list[RelationVersion]:
    """Return the last versions, each the `same` as the one before."""
    stretch = [history[-1]]
    for form in reversed(history[:-1]):
        if not same(form, stretch[0]):
            break
        stretch.insert(0, form)
    return stretch


def _first(stretch: Sequence[RelationVersion]) -> Place:
    return min(form.since for form in stretch)


def _known(names: Sequence[dict[str, Any]]) -> Place:
    """Return the place from which on the values of a column are known to be the same."""
    return min(((each["lsn"], each["idx"]) for each in names), default=(2**63 - 1, 0))
