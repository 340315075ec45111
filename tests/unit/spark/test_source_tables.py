"""Which oids are one table, and which columns of its forms are one: by oid and attnum, else by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lake.tables import forms
from lake.tables.columns import number_columns
from lake.tables.forms import LakeTableForm, ReplicationPlace, SourceServer
from lake.tables.source_tables import LinkedTable, link_tables, owners

HERE, RESTORED, ELSEWHERE = SourceServer("1", 1), SourceServer("1", 2), SourceServer("2", 1)


def form(
    lsn: int, name: str, oid: int, epoch: int = 0, relation: int | None = None, columns: str = "id:1 v:2"
) -> LakeTableForm:
    """A form from `lsn` on; a column is `name:attnum`, `name:?` or, where it is known to go on, `name:=`."""
    made = []
    for text in columns.split():
        called, _, attnum = text.partition(":")
        goes_on = {"?": False, "=": True}.get(attnum)
        made.append(forms.FormColumn(called, int(attnum) if attnum.isdigit() else None, "int", 23, -1, 23, goes_on))
    place = ReplicationPlace(0, epoch, lsn, 0)
    return LakeTableForm(lsn + 1000 * epoch, "s", place, relation or oid, oid, "public", name, tuple(made), ("id",))


def linked(*of: LakeTableForm, second: SourceServer = HERE) -> list[list[tuple[str, int]]]:
    """Names and oids of the tables' forms."""
    tables = link_tables(of, {("s", 0): HERE, ("s", 1): second})
    return [[(each.name, each.table_oid) for each in table.forms] for table in tables]


def test_an_oid_is_one_table_in_an_epoch() -> None:
    found = linked(form(1, "a", 1), form(2, "b", 2), form(3, "b", 1), form(4, "a", 2), form(5, "a", 3))
    assert found == [[("a", 1), ("b", 1)], [("b", 2), ("a", 2)], [("a", 3)]]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (HERE, [[("a", 1), ("c", 1)], [("b", 2), ("b", 2)]]),
        (ELSEWHERE, [[("a", 1)], [("b", 2), ("b", 2)], [("c", 1)]]),
    ],
)
def test_oids_go_on_in_the_next_epoch_of_the_same_server_only(
    second: SourceServer, found: list[list[tuple[str, int]]]
) -> None:
    assert linked(form(1, "a", 1), form(2, "b", 2), form(1, "c", 1, 1), form(2, "b", 2, 1), second=second) == found


def test_on_another_server_the_name_tells() -> None:
    found = linked(form(1, "a", 1), form(2, "b", 2), form(1, "b", 1, 1), form(2, "a", 2, 1), second=ELSEWHERE)
    assert found == [[("a", 1), ("a", 2)], [("b", 2), ("b", 1)]]


def test_after_a_restore_an_oid_may_have_been_given_again() -> None:
    found = linked(form(1, "a", 1), form(2, "b", 2), form(1, "b", 1, 1), form(2, "c", 2, 1), second=RESTORED)
    assert found == [[("a", 1)], [("b", 2), ("b", 1)], [("c", 2)]]


def owned(tables: Sequence[LinkedTable], upto: int) -> dict[str, int]:
    """Which oid each name is, as of an LSN."""
    places = {table.root: ReplicationPlace(0, 0, upto, 0) for table in tables if table.forms[0].place.lsn <= upto}
    return {name: table.root[2] for name, table in owners(tables, places).items()}


def test_a_name_is_that_of_the_table_which_had_it_last() -> None:
    tables = link_tables([form(1, "a", 1), form(5, "a", 2), form(9, "b", 1), form(12, "a", 1)], {("s", 0): HERE})
    assert owned(tables, 4) == {"public.a": 1}
    assert owned(tables, 5) == {"public.a": 2}
    assert owned(tables, 9) == {"public.a": 2, "public.b": 1}
    assert owned(tables, 12) == {"public.a": 1}


def numbers(*columns: str, relations: Sequence[int] = ()) -> list[dict[str, int]]:
    found = number_columns(
        [
            form(at, "a", 1, relation=relations[at] if relations else None, columns=each)
            for at, each in enumerate(columns)
        ]
    )
    return [dict(each.numbers) for each in found]


def test_an_attnum_is_one_column() -> None:
    assert numbers("id:1 v:2", "id:1 w:2", "w:1 id:2", "id:2 v:3") == [
        {"id": 0, "v": 1},
        {"id": 0, "w": 1},
        {"w": 0, "id": 1},
        {"id": 1, "v": 2},
    ]


def unclear(*columns: str) -> list[tuple[str, ...]]:
    return [
        each.unclear for each in number_columns([form(at, "a", 1, columns=each) for at, each in enumerate(columns)])
    ]


def test_where_attnums_are_not_certain_names_tell() -> None:
    assert numbers("id:1 v:2", "id:1 v:=", "id:1 v:2") == [{"id": 0, "v": 1}] * 3
    assert unclear("id:1 v:2", "id:1 v:=", "id:1 v:= w:?") == [()] * 3


@pytest.mark.parametrize("after", ["id:1 v:?", "id:1 w:?", "id:1 w:="])
def test_what_may_be_another_column_is_unclear(after: str) -> None:
    assert unclear("id:1 v:2", after)[1] == tuple(sorted({"v", after.split()[1].split(":")[0]}))


def test_partitions_have_attnums_of_their_own() -> None:
    found = numbers(
        "id:1 v:2", "v:1 id:3", "id:1 w:2", "w:1 id:3", "id:1 w:2 x:3", "w:1 id:3 x:4", relations=[5, 6] * 3
    )
    assert found[:4] == [{"id": 0, "v": 1}, {"id": 0, "v": 1}, {"id": 0, "w": 1}, {"id": 0, "w": 1}]
    assert found[4] == found[5] == {"id": 0, "w": 1, "x": 2}
