"""Which rows that lack unchanged values can be filled in together, and where the log has what they lack. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Place = tuple[int, int]
"""commit_lsn and commit_idx."""


@dataclass(frozen=True)
class Unfilled:
    """A staged row that lacks `columns`. `known_pk`: under which key the log has the row's last event, if any."""

    ordinal: int
    relation_id: int
    known_pk: str | None
    record_pk: str
    columns: list[str]

    def leaves_alone(self, later: Unfilled) -> bool:
        """Whether `later`, of the same row, finds the same before this one as after it."""
        return (
            self.known_pk == self.record_pk
            and self.relation_id == later.relation_id
            and set(later.columns) <= set(self.columns)
        )


def batches(rows: Iterable[Unfilled], relations: dict[int, int]) -> Iterator[list[Unfilled]]:
    """Rows in order, cut so that none needs what another of its batch supplies. `relations`: oid by relation_id."""
    batch: list[Unfilled] = []
    last: dict[tuple[int, str], Unfilled] = {}
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
class Form:
    """A relation from `since` on, as the history has it."""

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
        """Whether it is no partition."""
        return self.relation_oid == self.table_oid

    @property
    def key(self) -> list[object]:
        """What the key is, whatever its columns are called; by name where the history does not know more."""
        numbers = {column["name"]: column.get("attnum") for column in self.columns}
        return [name if numbers.get(name) is None else numbers[name] for name in self.key_columns]

    def names(self, column: dict[str, Any]) -> list[dict[str, Any]]:
        """Under which names the log has values of this column, and from where on."""
        here = {"name": column["name"], "lsn": self.since[0], "idx": self.since[1]}
        return column.get("names") or [here]


def origin(history: Sequence[Form], void: Place = (0, 0)) -> dict[str, Any]:
    """Where the log has the rows of a relation in its last form: under which table oids from which places on, and under
    which names their columns. `void`: nothing before it is good.

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


def _homes(history: Sequence[Form]) -> list[list[Form]]:
    """The last forms that belong to one table, and of a partition those from when it was a table by itself."""
    last = history[-1]
    if last.is_root:
        return [_stretch(history, _same_table)]
    if not last.unique_in_root:
        return []
    found = _stretch(history, _same_table)
    before = history[: -len(found)]
    return [found, _stretch(before, _same_table)] if before and before[-1].is_root else [found]


def _same_rows(before: Form, after: Form) -> bool:
    """Whether a key named the same row, and no update in between went unpublished."""
    published = set(before.memberships or ()) & set(after.memberships or ())
    return before.key == after.key and bool(published)


def _same_table(before: Form, after: Form) -> bool:
    return before.table_oid == after.table_oid and bool(before.is_root or before.unique_in_root)


def _stretch(history: Sequence[Form], same: Callable[[Form, Form], bool]) -> list[Form]:
    """The last forms of which each is the `same` as the one before."""
    stretch = [history[-1]]
    for form in reversed(history[:-1]):
        if not same(form, stretch[0]):
            break
        stretch.insert(0, form)
    return stretch


def _first(stretch: Sequence[Form]) -> Place:
    return min(form.since for form in stretch)


def _known(names: Sequence[dict[str, Any]]) -> Place:
    """From where on the values of a column are known to be the same."""
    return min(((each["lsn"], each["idx"]) for each in names), default=(2**63 - 1, 0))
