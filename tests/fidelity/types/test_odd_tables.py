"""Names that have to be quoted, as many columns as there can be, and values of 40 MB."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import sql

from tests.fidelity.types.stage import Comparing
from tests.fidelity.types.tables import MANY, ODD_COLUMNS, ODD_TABLES

pytestmark = pytest.mark.xdist_group("fidelity")


@pytest.mark.parametrize("table", ODD_TABLES)
def test_names_are_kept_as_they_are(stage: Comparing, table: str) -> None:
    before = stage.head()
    name = sql.Identifier("public", table)
    stage.replicate(
        sql.SQL("insert into {} values (1, {})").format(name, sql.SQL(", ").join(map(sql.Literal, ODD_COLUMNS))),
        sql.SQL("update {} set {} = 'new'").format(name, sql.Identifier(ODD_COLUMNS[0])),
        sql.SQL("delete from {}").format(name),
        sql.SQL("insert into {} values (1, {})").format(name, sql.SQL(", ").join(map(sql.Literal, ODD_COLUMNS))),
        sql.SQL("truncate {}").format(name),
        sql.SQL("insert into {} values (1, {})").format(name, sql.SQL(", ").join(map(sql.Literal, ODD_COLUMNS))),
    )
    events = stage.events(table, before)
    assert [event.action for event in events] == ["insert", "update", "delete", "insert", "truncate", "insert"]
    assert stage.differing(table, events[-1:]) == []


def test_sixteen_hundred_columns(stage: Comparing) -> None:
    before = stage.head()
    stage.replicate(
        sql.SQL("insert into public.wide values (1, {})").format(
            sql.SQL(", ").join([sql.Literal(None if n % 3 else "null") for n in range(MANY - 1)])
        )
    )
    events = stage.events("wide", before)
    assert len(events) == 1
    assert stage.differing("wide", events, each_column=False) == []


@pytest.mark.parametrize("size", [4_000_000, pytest.param(40_000_000, marks=pytest.mark.long)])
def test_large_values(stages: Callable[[int], Comparing], size: int) -> None:
    stage = stages(18)
    before = stage.head()
    stage.replicate(
        f"insert into public.large select {size}, v, convert_to(v, 'UTF8'), jsonb_build_object('v', v), to_json(v)"
        f" from repeat('12345678\\\"', {size // 10}) as v"
    )
    events = stage.events("large", before)
    assert [len(event.record) > 4 * size for event in events] == [True]
    assert stage.differing("large", events, each_column=False) == []
