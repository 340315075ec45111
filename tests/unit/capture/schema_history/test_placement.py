"""Columns of a message are found in a catalog that has moved on, or it is said that they cannot be."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pipeline.capture.schema_history.catalog_table import CatalogColumn, CatalogTable
from pipeline.capture.schema_history.placement import place_columns
from pipeline.capture.schema_history.versions import HistoryVersion, PublishedColumn
from pipeline.wal.messages import RelationColumn, RelationMessage

INT, TEXT, VARCHAR = 23, 25, 1043
Form = tuple[int, str, int]
"""attnum, name and type of a column."""


def catalog(*columns: Form | int, settled: frozenset[int] = frozenset(), **fields: Any) -> CatalogTable:
    """A number alone is a dropped column."""
    found = [
        CatalogColumn(each, "", 0, -1, dropped=True, settled=each in settled)
        if isinstance(each, int)
        else CatalogColumn(*each, -1, settled=each[0] in settled)
        for each in columns
    ]
    return CatalogTable("public", "t", "d", 1, "public", "t", tuple(found), **fields)


def version(*columns: Form, memberships: tuple[int, ...] = ()) -> HistoryVersion:
    known = tuple(
        PublishedColumn(name, type_oid, -1, "", type_oid, False, attnum) for attnum, name, type_oid in columns
    )
    return HistoryVersion(1, "public", "t", 1, "public", "t", "d", known, (), memberships=memberships)


def message(*columns: tuple[str, int]) -> RelationMessage:
    return RelationMessage(1, "public", "t", "d", tuple(RelationColumn(False, *column, -1) for column in columns))


ID, A, B, C = (1, "id", INT), (2, "a", TEXT), (3, "b", TEXT), (4, "c", TEXT)


@pytest.mark.parametrize(
    ("sent", "now", "before", "expected"),
    [
        pytest.param(("id", "x", "b"), catalog(ID, (2, "y", TEXT), B), None, [1, 2, 3], id="nothing was dropped"),
        pytest.param(("id", "x", "b"), catalog(ID, 2, B), version(ID, A, B), [1, 2, 3], id="renamed, then dropped"),
        pytest.param(("id", "b"), catalog(ID, 2, B), version(ID, A, B), [1, 3], id="dropped"),
        pytest.param(("id", "b", "c"), catalog(ID, 2, B, C), version(ID, A, B), [1, 3, 4], id="dropped, and one added"),
        pytest.param(("id", "a"), catalog(ID, 2, (3, "a", TEXT)), version(ID, A), [1, None], id="the same name again"),
        pytest.param(("id", "x"), catalog(ID, 2, (3, "y", TEXT)), version(ID, A), [1, None], id="renamed or another"),
        pytest.param(("id", "b"), catalog(ID, 2, B, settled=frozenset({2})), None, [1, 3], id="dropped long ago"),
        pytest.param(("id", "b"), catalog(ID, 2, B), None, [1, None], id="never seen before"),
        pytest.param(("id", "b"), catalog(ID, 2, B), version(ID), [1, None], id="which of two new ones"),
    ],
)
def test_columns(
    sent: tuple[str, ...], now: CatalogTable, before: HistoryVersion | None, expected: list[int | None]
) -> None:
    assert place_columns(message(*((name, INT if name == "id" else TEXT) for name in sent)), now, before) == expected


def test_a_dropped_table_tells_nothing() -> None:
    assert place_columns(message(("id", INT)), None, version(ID)) == [None]


def test_a_column_list_that_has_been_the_same_hides_the_same_columns() -> None:
    now = catalog(ID, A, (3, "x", TEXT), C, column_list=True, publication_settled=False, published=(7,))
    sent = message(("id", INT), ("b", TEXT))
    assert place_columns(sent, now, version(ID, B, memberships=(7,))) == [1, 3]
    assert place_columns(sent, now, version(ID, B)) == [1, None]  # the list may be another one


def test_a_generated_column_may_be_sent() -> None:
    table = catalog(ID, A, B)
    now = replace(table, columns=(*table.columns[:1], replace(table.columns[1], generated="s"), table.columns[2]))
    assert place_columns(message(("id", INT), ("b", TEXT)), now) == [1, 3]
    assert place_columns(message(("id", INT), ("a", TEXT), ("b", TEXT)), now) == [1, 2, 3]


@dataclass
class Live:
    """A table that a user alters."""

    random: random.Random
    names: Iterator[str]
    columns: list[Form | int]

    def alter(self) -> None:
        there = [at for at, column in enumerate(self.columns) if not isinstance(column, int)]
        at, chance = self.random.choice(there), self.random.random()
        column = self.columns[at]
        assert not isinstance(column, int)
        if chance < 0.35:
            self.columns.append((len(self.columns) + 1, next(self.names), self.random.choice((INT, TEXT))))
        elif chance < 0.6 and len(there) > 1:
            self.columns[at] = column[0]
        elif chance < 0.9:
            self.columns[at] = (column[0], next(self.names), column[2])
        else:
            self.columns[at] = (*column[:2], self.random.choice((INT, TEXT, VARCHAR)))

    @property
    def sent(self) -> list[Form]:
        return [column for column in self.columns if not isinstance(column, int)]


def test_names_that_are_used_once_are_never_placed_wrongly() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4000):
        rng = random.Random(seed)
        names = (f"n{number}" for number in itertools.count())
        table = Live(rng, names, [(1, next(names), INT), (2, next(names), TEXT), (3, next(names), TEXT)])
        settled = frozenset({3}) if rng.random() < 0.3 else frozenset[int]()
        if settled:
            table.columns[2] = 3
        before = version(*table.sent) if seed % 2 else None
        for _ in range(rng.randrange(4)):
            table.alter()
        sent = table.sent
        for _ in range(rng.randrange(4)):
            table.alter()
        found = place_columns(message(*(form[1:] for form in sent)), catalog(*table.columns, settled=settled), before)
        for number, form in zip(found, sent, strict=True):
            assert number in (form[0], None), f"seed {seed}: {sent} of {table.columns} after {before}: {found}"
            seen["unknown" if number is None else "found"] += 1
    assert seen["unknown"] < 0.1 * seen["found"], seen
