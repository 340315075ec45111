"""Two databases without followers and writers: which rows differ, with any keys, names and encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.errors import NotComparableError
from pipeline.followers.verifying import comparison, shape
from pipeline.followers.verifying.comparison import RowDifference, TableComparison
from pipeline.followers.verifying.shape import ComparedRelation, ComparedTable
from pipeline.postgres import connections, reading_session, session_settings
from pipeline.postgres.connections import Connection
from tests.fixtures.postgres import Cluster, unique

SETTINGS = {**session_settings.SERVER, "search_path": ""}


@dataclass(frozen=True)
class Sides:
    source: Connection
    follower: Connection

    def run(self, *statements: str) -> None:
        for statement in statements:
            for connection in (self.source, self.follower):
                connection.execute(statement.encode())

    def table(self, name: str, key: str = "id", condition: str | None = None) -> ComparedTable:
        query = "select column_name from information_schema.columns where table_name = %s order by ordinal_position"
        columns = tuple(row[0] for row in self.source.execute(query, (name,)).fetchall())
        relation = sql.Identifier("public", name).as_string(self.source)
        keys = tuple(each for each in key.split("|") if each)
        return ComparedTable("public", name, columns, keys, (ComparedRelation(relation, condition),), "public", name)

    def compare(
        self, table: ComparedTable, reach: Callable[[], object] = lambda: None, *, unsettled: int = 0
    ) -> list[RowDifference]:
        with (
            reading_session.transaction(self.source, comparison.SOURCE),
            reading_session.transaction(self.follower, comparison.FOLLOWER),
        ):
            found = shape.read(self.source, self.follower, table)
        steps = list(TableComparison(self.source, self.follower, table, found, reach).run())
        assert sum(step.unsettled for step in steps) == unsettled
        return sorted((each for step in steps for each in step.differences), key=lambda each: (each.kind, each.key))


@contextmanager
def opened(source_dsn: str, follower_dsn: str) -> Iterator[Sides]:
    with (
        connections.connect(source_dsn, "source", settings=SETTINGS) as source,
        connections.connect(follower_dsn, "follower", settings=SETTINGS) as follower,
    ):
        yield Sides(source, follower)


@pytest.fixture
def sides(source_dsn: str, follower_dsn: str) -> Iterator[Sides]:
    with opened(source_dsn, follower_dsn) as made:
        yield made


def test_every_part_is_compared(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "ROWS_PER_PART", 7)
    monkeypatch.setattr(comparison, "KEYS_PER_LOOK", 3)
    sides.run(
        "create table public.t (id int, part text, n int, primary key (part, id))",
        "insert into public.t select i, 'p' || i % 3, i from generate_series(1, 100) i",
    )
    for key in ("part|id", "id|part"):
        assert sides.compare(sides.table("t", key)) == []
    sides.follower.execute("delete from public.t where id % 10 = 0")
    sides.follower.execute("insert into public.t select i, 'q', i from generate_series(1, 20) i")
    sides.follower.execute("update public.t set n = -1 where id in (1, 99) and part <> 'q'")
    found = sides.compare(sides.table("t", "part|id"))
    kinds = [each.kind for each in found]
    assert (kinds.count("missing"), kinds.count("extra"), kinds.count("different")) == (10, 20, 2)
    assert found[:2] == [
        RowDifference(("p0", "99"), "different", ("n",)),
        RowDifference(("p1", "1"), "different", ("n",)),
    ]


def test_an_empty_side_lacks_all_rows(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "KEYS_PER_LOOK", 10)
    sides.run("create table public.t (id int primary key)")
    assert sides.compare(sides.table("t")) == []
    sides.source.execute("insert into public.t select generate_series(1, 25)")
    assert [each.kind for each in sides.compare(sides.table("t"))] == ["missing"] * 25
    sides.follower.execute("insert into public.t select generate_series(1, 25)")
    sides.source.execute("delete from public.t")
    assert [each.kind for each in sides.compare(sides.table("t"))] == ["extra"] * 25


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", "'a', 'B', '', ' ', 'ä', $$it's \\$$"),
        ('text collate "C"', "'a', 'B', '', ' ', 'ä'"),
        ("varchar(10)", "'a', 'b '"),
        ("char(3)", "'a', 'bc'"),
        ("numeric", "1.50, -0.0, 'NaN'"),
        ("float8", "'-0', 'Infinity', 1e300, 0.1"),
        ("timestamptz", "'2020-01-01 00:00+02', 'infinity'"),
        ("uuid", "'00000000-0000-0000-0000-000000000001'"),
        ("bytea", "'\\x00', '\\x'"),
        ("int[]", "'{1,2}', '[0:1]={1,2}', '{}'"),
        ("public.label", "'x', 'a'"),
        ("public.positive", "1, 2"),
        ("interval", "'1 mon', '30 days 1 second'"),
    ],
)
def test_rows_are_found_by_keys_of_every_sort(sides: Sides, kind: str, values: str) -> None:
    sides.run(
        "create type public.label as enum ('x', 'a')",
        "create domain public.positive as int check (value > 0)",
        f"create table public.t (id {kind} primary key, note text)",
    )
    for value in values.split(", "):
        sides.run(f"insert into public.t values ({value}, 'n')")
    assert sides.compare(sides.table("t")) == []
    sides.follower.execute("update public.t set note = 'N'")
    found = sides.compare(sides.table("t"))
    assert [(each.kind, each.columns) for each in found] == [("different", ("note",))] * len(values.split(", "))


def test_a_key_that_is_printed_otherwise_is_one_difference(sides: Sides) -> None:
    sides.run("create table public.t (id numeric primary key)")
    sides.source.execute("insert into public.t values (1.0)")
    sides.follower.execute("insert into public.t values (1.00)")
    assert sides.compare(sides.table("t")) == [RowDifference(("1.0",), "different", ("id",))]


def test_names_may_be_anything(sides: Sides) -> None:
    sides.run(
        'create table public."o%dd {} "" tab\'le" ("~" int, "~~" int, "a%s {}" int, primary key ("~", "a%s {}"))',
        'insert into public."o%dd {} "" tab\'le" values (1, 2, 3)',
    )
    name, key = "o%dd {} \" tab'le", "~|a%s {}"
    assert sides.compare(sides.table(name, key)) == []
    sides.follower.execute(b'update public."o%dd {} "" tab\'le" set "~~" = null')
    assert sides.compare(sides.table(name, key)) == [RowDifference(("1", "3"), "different", ("~~",))]


def test_values_that_are_equal_for_sql_may_differ(sides: Sides) -> None:
    sides.run(
        "create type public.pair as (a int, b text)",
        "create table public.t (id int primary key, pair public.pair, doc jsonb, code char(3), f float8[], p point)",
        """insert into public.t values
        (1, '(,)', '{"a": 1.0}', 'a', '{-0,1}', '(0,1)'), (2, null, 'null', '', null, null)""",
    )
    assert sides.compare(sides.table("t")) == []
    sides.follower.execute(
        """update public.t set pair = null, doc = '{"a": 1}', f = '{0,1}', p = '(-0,1)' where id = 1"""
    )
    sides.follower.execute("update public.t set doc = null, code = null, f = '{}' where id = 2")
    assert sides.compare(sides.table("t")) == [
        RowDifference(("1",), "different", ("pair", "doc", "f", "p")),
        RowDifference(("2",), "different", ("doc", "code", "f")),
    ]


def test_only_rows_that_are_published_count_and_columns_of_both(sides: Sides) -> None:
    sides.run("create table public.t (id int primary key, n int)")
    sides.follower.execute("alter table public.t add own int, add twice int generated always as (n * 2) stored")
    sides.source.execute("alter table public.t add twice int")
    sides.source.execute("insert into public.t select i, i from generate_series(1, 10) i")
    sides.follower.execute("insert into public.t (id, n, own) select i, i, i from generate_series(1, 5) i")
    table = sides.table("t", condition="(n <= 5)")
    assert sides.compare(table) == []
    assert len(sides.compare(sides.table("t"))) == 5
    sides.source.execute("alter table public.t add later int")
    with pytest.raises(NotComparableError, match="the follower has no column later"):
        sides.compare(sides.table("t"))


def test_a_role_that_may_read_only_published_columns_compares_them(sides: Sides) -> None:
    sides.run(
        "create table public.t (id int primary key, n int, hidden int)", "insert into public.t values (1, 1), (2, 2)"
    )
    sides.follower.execute("update public.t set n = 3 where id = 2")
    role = unique("reader")
    sides.source.execute(f"create role {role} login; grant select (id, n) on public.t to {role}".encode())
    try:
        with opened(make_conninfo(sides.source.info.dsn, user=role), sides.follower.info.dsn) as narrow:
            assert narrow.compare(narrow.table("t")) == [RowDifference(("2",), "different", ("n",))]
            assert narrow.compare(narrow.table("t", "")) == [RowDifference((), "different")]
    finally:
        sides.source.execute(f"drop owned by {role}; drop role {role}".encode())


def test_rows_without_a_key_are_a_multiset(sides: Sides) -> None:
    sides.run("create table public.t (a int, b text)", "insert into public.t values (1, 'x'), (1, 'x'), (2, null)")
    assert sides.compare(sides.table("t", "")) == []
    sides.follower.execute("delete from public.t where ctid = (select min(ctid) from public.t)")
    assert sides.compare(sides.table("t", "")) == [RowDifference((), "different")]
    sides.follower.execute("insert into public.t values (1, 'x')")
    assert sides.compare(sides.table("t", "")) == []


def test_encodings_may_be_other_ones(source_dsn: str, follower_cluster: Cluster) -> None:
    name = unique("latin")
    with follower_cluster.connect() as connection:
        create = "create database {} template template0 encoding 'LATIN1' locale 'C'"
        connection.execute(sql.SQL(create).format(sql.Identifier(name)))
    try:
        with opened(source_dsn, follower_cluster.dsn(name)) as sides:
            sides.run("create table public.t (id text primary key, n text)", "insert into public.t values ('ä', 'ö')")
            assert sides.compare(sides.table("t")) == []
            sides.follower.execute("update public.t set n = 'o'")
            assert sides.compare(sides.table("t")) == [RowDifference(("ä",), "different", ("n",))]
    finally:
        follower_cluster.drop(name)


def test_a_row_that_arrives_between_two_looks_is_no_difference(sides: Sides) -> None:
    sides.run("create table public.t (id int primary key)")
    sides.source.execute("insert into public.t values (1), (2)")
    asked = []

    def reach() -> None:
        asked.append(1)
        sides.follower.execute("insert into public.t values (1) on conflict do nothing")

    assert sides.compare(sides.table("t"), reach) == [RowDifference(("2",), "missing")]
    assert len(asked) == 2


@pytest.mark.parametrize("key", ["id", ""])
def test_what_is_written_at_every_look_is_no_difference_and_is_counted(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(comparison, "PATIENCE", 0.1)
    sides.run("create table public.t (id int primary key, n int)", "insert into public.t values (1, 0), (2, 0)")
    sides.source.execute("update public.t set n = 1 where id = 2")

    def reach() -> None:
        sides.source.execute("update public.t set n = n + 1 where id = 2")

    assert sides.compare(sides.table("t", key), reach, unsettled=1) == []


def test_rows_without_a_column_are_counted(sides: Sides) -> None:
    sides.run("create table public.t ()", "insert into public.t default values")
    assert sides.compare(sides.table("t", "")) == []
    sides.source.execute("insert into public.t default values")
    assert sides.compare(sides.table("t", "")) == [RowDifference((), "different")]
    sides.follower.execute("drop table public.t")
    with pytest.raises(NotComparableError, match="the follower has no such table"):
        sides.compare(sides.table("t", ""))
