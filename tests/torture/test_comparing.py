"""The comparison: what the log may say of a change, and what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.torture.oracle.comparing import Logged, first_difference
from tests.torture.oracle.forms import Eras, change, fields
from tests.torture.oracle.knowing import Known
from tests.torture.oracle.model import Event
from tests.torture.plan.plan import Change, Row

LONG = "x" * 40
OLD = f"(1,{LONG},0.5,)"
NEW = f'(1,{LONG},0.5,"{{""a"": 1}}")'
COLUMNS = (("id", 23, None), ("big", 25, None), ("size", 701, None), ("doc", 114, 114))


def form(**other: Any) -> dict[str, Any]:
    columns = [{"name": name, "type": of, "json": json, "generated": ""} for name, of, json in COLUMNS]
    told = {"insert": True, "update": True, "delete": True, "truncate": True, "generated": False}
    return {
        "oid": 1, "root": 1, "name": "kinds.leaf", "table": "kinds.t", "identity": "d", "key": ["id"],
        "columns": columns, "told": told, **other,
    }  # fmt: skip


def logged(**other: Any) -> Logged:
    record = {"id": "1", "big": f'"{LONG}"', "size": "0.50", "doc": '{"a": 1}'}
    values = {"xid": 7, "commit_lsn": 9, "commit_idx": 0, "table": "kinds.t", "action": "update", "key": "1"}
    return Logged(**{**values, "record": record, "unchanged": (), "exact": {}, "changes": {}, **other})


def row(before: str | None, era: int = 1) -> Row:
    return Row(1, era, before, {name: number for number, (name, *_) in enumerate(COLUMNS, 1)})


def difference(event: Logged, action: str = "update", **of_form: Any) -> str | None:
    old, new = (OLD, NEW) if action == "update" else (None, NEW)
    wanted = change(action, form(**of_form), old, new)
    return first_difference([event], [Event(7, 9, 0, wanted._replace(row=row(None)))], Known())


def test_a_row_as_postgres_prints_it_is_its_columns():
    assert fields(r'(1,,"","a ""b"" \\ c",\x00)', 4) == ["1", None, "", 'a "b" \\ c']
    assert fields("()", 1) == [None]


def test_a_value_left_alone_is_there_or_named():
    assert difference(logged()) is None
    record = {name: value for name, value in logged().record.items() if name != "big"}
    assert difference(logged(record=record, unchanged=["big"])) is None


def test_a_value_that_is_neither_there_nor_named_is_missing():
    record = {name: value for name, value in logged().record.items() if name != "big"}
    assert "columns ['big']" in (difference(logged(record=record)) or "")


def test_only_what_the_wal_may_lack_is_named():
    record = {name: value for name, value in logged().record.items() if name != "big"}
    said = difference(logged(action="insert", record=record, unchanged=["big"]), "insert")
    assert "the WAL has ['big']" in (said or "")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"key": "2"}, "key is '2'"),
        ({"table": "kinds.leaf"}, "table is 'kinds.leaf'"),
        ({"record": {**logged().record, "big": f'"{LONG}y"'}}, "column big is"),
        ({"record": {**logged().record, "size": "0.51"}}, "column size is"),
        ({"record": {**logged().record, "size": "null"}}, "column size is"),
        ({"record": {**logged().record, "doc": '{"a":1}'}}, "column doc is"),
        ({"exact": {"doc": '{"a":1}'}}, "column doc is"),
        ({"changes": {"size": "0.4"}}, "changes are of ['size']"),
    ],
)
def test_what_differs_is_said(other: dict[str, Any], said: str):
    assert said in (difference(logged(**other)) or "")


def test_old_values_are_compared_where_the_wal_has_them():
    assert "changes are of [] and not of ['doc']" in (difference(logged(), identity="f") or "")
    assert difference(logged(changes={"doc": "null"}), identity="f") is None


def wanted(action: str, before: str | None, era: int = 1) -> Change:
    old, new = (OLD, NEW) if action == "update" else (None, NEW)
    return change(action, form(), old, new)._replace(row=row(before, era))


def test_a_value_that_the_log_has_must_be_filled_in():
    known = Known()
    assert known.missed((), wanted("insert", None)) is None
    assert "big" in (known.missed(("big",), wanted("update", "1")) or "")


def test_a_value_that_the_log_never_had_is_only_named():
    known = Known()
    assert known.missed(("big",), wanted("update", "1")) is None
    assert known.missed(("big",), wanted("update", "1")) is None


def test_of_a_table_that_changes_it_need_not_be():
    known = Known({1})
    assert known.missed((), wanted("insert", None)) is None
    assert known.missed(("big",), wanted("update", "1")) is None
    assert known.counts["left alone, named though known"] == 1


def test_a_rewrite_forgets_what_the_log_has():
    known = Known()
    assert known.missed((), wanted("insert", None)) is None
    assert known.missed(("big",), wanted("update", "1", era=2)) is None


def of_old(action: str) -> Change:
    return Change("public.made_1_1", action, "1", {"id": "1", "big": LONG}, ("big",) if action == "update" else ())


def test_a_value_older_than_the_read_is_in_doubt_if_the_key_came_later():
    known = Known(old=True, keyed_later={"public.made_1_1"})
    assert known.missed((), of_old("insert")) is None
    assert known.missed(("big",), of_old("update")) is None
    assert known.missed((), of_old("insert")) is None
    known.read("public.made_1_1", "")
    assert known.missed(("big",), of_old("update")) is None
    assert known.missed((), of_old("insert")) is None
    known.read("public.made_1_1", "2")
    assert known.missed(("big",), of_old("update")) is None, "it was not among what was read"
    known.read("public.made_1_1", "1")
    assert "big" in (known.missed(("big",), of_old("update")) or "")


def test_an_era_ends_where_the_log_no_longer_says_what_a_row_holds():
    columns = [{"name": "id", "attnum": 1}, {"name": "big", "attnum": 2}]
    one = {"oid": 1, "file": 5, "identity": "d", "key": ["id"], "told": {}, "root": 1, "columns": columns}
    eras = Eras()
    renamed = {**one, "key": ["no"], "columns": [{"name": "no", "attnum": 1}, columns[1]]}
    forms = (one, one, renamed, {**one, "file": 6}, {**one, "file": 6, "identity": "f"})
    assert [eras.enter(form) for form in forms] == [1, 1, 1, 2, 3]
    assert eras.changed == {1}
