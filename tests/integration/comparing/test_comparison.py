"""The log and the source are compared while both are written: every difference is found, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pipeline.comparing import comparison
from pipeline.comparing.log_state import LogState
from pipeline.errors import NotComparableError
from tests.fixtures.background import BackgroundThread
from tests.fixtures.comparing_content import compare, comparing, differing, made
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases
from tests.torture.plan import literals
from tests.torture.plan.statements import literal

TYPES = [name for name in literals._FIXED if "types." not in name and "json" not in name and name != "bit"]


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster], cluster: Cluster) -> Iterator[Stage]:
    with (
        databases(clusters(getattr(request, "param", 18)), cluster, snapshot="never") as config,
        Stage(config) as stage,
    ):
        stage.start()
        yield stage


on_both = pytest.mark.parametrize("stage", [18, 15], indirect=True)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "ROWS_PER_PART", 7)
    monkeypatch.setattr(comparison, "PARTS_PER_LOOK", 3)


@on_both
def test_values_of_every_type_print_alike_at_both_sides(stage: Stage):
    columns = ", ".join(f'"c {number}" {name}' for number, name in enumerate(TYPES))
    most = max(len(literals._FIXED[name]) for name in TYPES)
    rows = [
        ", ".join(literal(texts[row % len(texts)]) if (texts := literals._FIXED[name]) else "null" for name in TYPES)
        for row in range(most)
    ]
    made(
        stage,
        "typed",
        f"id int primary key, {columns}",
        *(f"insert into typed values ({number}, {row})" for number, row in enumerate(rows)),
        "insert into typed values (-1)",
    )
    assert compare(stage, "typed") == (most + 1, [])


@on_both
def test_json_in_every_form(stage: Stage):
    texts = ["null", "1", '"x"', "[]", "true", "1.50", '"\\"quoted\\""', "1e3", "{}", "-0", '{"b":1, "a":2}', '"NULL"']
    loose = ['{"a":1, "a":2}', '{ "b" : [ 1 ,2] }', '"\\u0000"', "1e400000"]
    made(
        stage,
        "documents",
        "id int primary key, j json, b jsonb",
        *(f"insert into documents values ({n}, '{text}', '{text}')" for n, text in enumerate(texts)),
        *(f"insert into documents values ({100 + n}, '{text}', null)" for n, text in enumerate(loose)),
        "insert into documents values (200, null, null)",
    )
    assert compare(stage, "documents") == (len(texts) + len(loose) + 1, [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ('k text collate "C"', "md5(i::text)"),
        ("k text", "chr(65 + i %% 26) || case when i %% 2 = 0 then ' ' else '_' end || i"),
        ("k bpchar(12)", "'x' || i"),
        ("k uuid", "md5(i::text)::uuid"),
        ("k numeric", "i / 8.0"),
        ("k timestamptz", "now() + i * interval '1 s'"),
        ("k boolean, l int", "i %% 2 = 0, i"),
        ("k text, l date", "'q' || i %% 5, date '2024-01-01' + i"),
        ('k pg_catalog."char", l float8', "'z', i / 7.0"),
        ("k truth, l int", "i %% 2 = 0, i"),
        ("k half", "i / 2e20"),
        ("k mood, l int", "case when i %% 2 = 0 then 'sad'::mood else 'ok' end, i"),
    ],
)
def test_keys_of_every_order(stage: Stage, key: str, value: str):
    for made_once in ("type mood as enum ('sad', 'ok')", "domain truth as boolean", "domain half as float8"):
        stage.run(f"do $$ begin create {made_once}; exception when duplicate_object then null; end $$")
    names = ", ".join(part.split()[0] for part in key.split(", "))
    value = value.replace("%%", "%")
    made(
        stage,
        "keyed",
        f"{key}, n int, primary key ({names})",
        f"insert into keyed select {value}, i from generate_series(1, 50) i",
    )
    assert compare(stage, "keyed") == (50, [])
    stage.log.execute(
        "update sequin_events set record = record || '{\"n\": -1}'"
        " where source_table_name = 'keyed' and record ->> 'n' = '20'"
    )
    stage.log.execute("delete from sequin_events where source_table_name = 'keyed' and record ->> 'n' = '30'")
    _, found = compare(stage, "keyed")
    assert sorted(each.kind for each in found) == ["differs", "not in the log"]


def test_keys_that_sort_as_texts_are_those_of_the_source(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    """So they do where the log has one that is no value of its type; the source prints no value as JSON does."""
    make = LogState._make

    def refuse_types(state: LogState) -> None:
        if state._typed:
            raise psycopg.errors.InvalidTextRepresentation
        make(state)

    monkeypatch.setattr(LogState, "_make", refuse_types)
    made(
        stage,
        "misfit",
        "k boolean, l int, n int, primary key (k, l)",
        "insert into misfit select i % 2 = 0, i, i from generate_series(1, 20) i",
    )
    stage.log.execute(
        "update sequin_events set record = record || '{\"n\": 0}'"
        " where source_table_name = 'misfit' and record ->> 'n' in ('7', '12')"
    )
    _, found = compare(stage, "misfit")
    assert sorted((each.key, each.kind) for each in found) == [
        (("f", "7"), "differs"),
        (("t", "12"), "differs"),
    ]


def test_a_boolean_key_renamed_in_an_earlier_epoch_equals_the_source(stage: Stage):
    """Then the key is in `record_pk` alone, where a boolean is written as in JSON."""
    made(
        stage,
        "once_named",
        "k boolean, l int, n int, primary key (k, l)",
        "insert into once_named select i % 2 = 0, i, i from generate_series(1, 20) i",
    )
    stage.log.execute("update sequin_events set source_epoch = -1 where source_table_name = 'once_named'")
    stage.log.execute("update pipeline.relations set epoch = -1 where table_name = 'once_named'")
    stage.run("alter table once_named rename k to m", "insert into once_named values (true, 21, 21)")
    stage.arrive()
    _, found = compare(stage, "once_named")
    assert found == []


def test_a_composite_with_nulls_in_it_is_a_value(stage: Stage):
    stage.run("create type pair as (a int, b int)")
    made(
        stage,
        "composites",
        "id int primary key, n int, p pair",
        "insert into composites values (1, 1, '(,)'), (2, 2, '(1,)'), (3, 3, null), (4, 4, '(1,2)')",
    )
    stage.log.execute(
        "update sequin_events set record = record || '{\"n\": -1}' where source_table_name = 'composites'"
    )
    _, found = compare(stage, "composites")
    assert [[value.column for value in each.values] for each in found] == [["n"]] * 4


def test_what_a_table_went_through_is_no_difference(stage: Stage):
    """Key changes, deletes, truncates, columns that come, go and change their names, partitions."""
    made(
        stage,
        "lived",
        "id int primary key, a int, b text, big text",
        "alter table lived alter big set storage external",
        "insert into lived select i, i, 'gone', '' from generate_series(1, 9) i",
        "truncate lived",
        "insert into lived select i, i, i::text, repeat('x', 9000) from generate_series(1, 40) i",
        "update lived set id = id + 100 where id < 10",
        "update lived set a = -a where id > 20",
        "delete from lived where id between 30 and 33",
        "insert into lived values (30, 0, null, null)",
        "alter table lived rename a to c",
        "update lived set c = 7 where id = 25",
        "alter table lived add d int",
        "update lived set d = 1 where id = 26",
        "alter table lived drop b",
        "alter table lived rename c to b",
        "update lived set b = 8 where id = 27",
    )
    assert compare(stage, "lived") == (37, [])
    made(
        stage,
        "exchanged",
        "a int, b int, v int, primary key (a, b)",
        "insert into exchanged select i, i % 3, -i from generate_series(1, 40) i",
        "update exchanged set a = a + 100 where a < 9",
        "alter table exchanged rename a to old",
        "alter table exchanged rename v to a",
        "alter table exchanged rename old to v",
        "update exchanged set v = v + 100 where v < 20",
        "alter table exchanged rename b to c",
        "update exchanged set c = c + 5, a = 3 where v = 30",
        "alter table exchanged drop a, add a text, add f text",
        "update exchanged set f = 'no number' where c = 0",
        "alter table exchanged alter v type bigint, alter f type float8 using null",
    )
    assert compare(stage, "exchanged") == (40, [])
    made(
        stage,
        "parted",
        "id int primary key, n int) partition by range (id",
        "create table parted_1 partition of parted for values from (0) to (20)",
        "create table parted_2 partition of parted for values from (20) to (100)",
        "insert into parted select i, 0 from generate_series(0, 39) i",
        "update parted set id = id + 50 where id < 10",
    )
    assert compare(stage, "parted") == (40, [])


def test_a_value_that_the_columns_type_cannot_have_differs(stage: Stage):
    """An earlier epoch had another column of that name, and dropped it since."""
    made(
        stage,
        "earlier",
        "id int primary key, f float8, g float4, b boolean",
        "insert into earlier select i, 5e-324, 3.4028235e38, true from generate_series(1, 5) i",
    )
    stage.log.execute("update sequin_events set source_epoch = -1 where source_table_name = 'earlier'")
    assert compare(stage, "earlier") == (5, [])
    before = {
        "1": '{"f": "{a,b}"}',
        "2": '{"f": 1e400, "g": "x", "b": "tomorrow"}',
        "3": '{"f": 1e-400}',
        "4": '{"g": 1e-60, "b": [1]}',
    }
    for key, values in before.items():
        stage.log.execute(
            "update sequin_events set record = record || %s::jsonb"
            " where source_table_name = 'earlier' and record_pk = %s",
            (values, key),
        )
    _, found = compare(stage, "earlier")
    columns = {each.key[0]: "".join(value.column for value in each.values) for each in found}
    assert columns == {"1": "f", "2": "fgb", "3": "f", "4": "gb"}


class Writing(BackgroundThread):
    """Changes everything about the rows of a table."""

    def __init__(self, dsn: str, table: str, seed: int) -> None:
        super().__init__()
        self._dsn, self._table, self._random = dsn, table, random.Random(seed)

    def work(self) -> None:
        with psycopg.connect(self._dsn) as source:
            while not self.stopped.is_set():
                for _ in range(self._random.randint(1, 5)):
                    self._write(source)
                source.commit() if self._random.random() < 0.8 else source.rollback()

    def _write(self, source: psycopg.Connection) -> None:
        one, other, value = (self._random.randrange(200) for _ in range(3))
        source.execute(
            self._random.choice(
                (
                    f"insert into {self._table} values ({one}, {value}) on conflict (id) do update set n = {value}",
                    f"update {self._table} set n = {value} where id = {one}",
                    f"delete from {self._table} where id = {one}",
                    f"update {self._table} set id = {one} where id = {other}"
                    f" and not exists (select from {self._table} where id = {one})",
                )
            ).encode()
        )


@on_both
def test_rows_that_are_written_meanwhile_are_no_difference(stage: Stage):
    made(stage, "busy", "id int primary key, n int", "insert into busy select i, 0 from generate_series(0, 199, 2) i")
    with Writing(stage.config.source, "busy", 1), comparing(stage, "busy") as made_of_it:
        for _ in range(3):
            rows, found = differing(made_of_it)
            assert found == []
            assert rows > 20
    stage.run("insert into busy values (1000, 1)")
    stage.arrive()
    stage.log.execute("update sequin_events set record = record || '{\"n\": -1}' where record_pk = '1000'")
    _, found = compare(stage, "busy")
    assert [(each.key, each.kind) for each in found] == [(("1000",), "differs")]


def test_a_row_with_values_missing_in_the_log_is_compared_by_the_rest(stage: Stage):
    made(
        stage,
        "toasted",
        "id int primary key, n int, big text",
        "alter table toasted alter big set storage external",
        "insert into toasted select i, 0, repeat('x', 9000) from generate_series(1, 3) i",
    )
    stage.log.execute("delete from sequin_events where source_table_name = 'toasted'")
    stage.run("update toasted set n = 1", "insert into toasted values (4, 1, 'known')")
    stage.arrive()
    assert compare(stage, "toasted") == (4, [])
    stage.log.execute(
        "update sequin_events set record = record || '{\"n\": 2}'"
        " where source_table_name = 'toasted' and record_pk = '2'"
    )
    _, found = compare(stage, "toasted")
    assert [(each.key, [value.column for value in each.values]) for each in found] == [(("2",), ["n"])]


def test_a_table_that_is_truncated_meanwhile_is_begun_again(stage: Stage):
    made(stage, "emptied", "id int primary key", "insert into emptied select generate_series(1, 60)")
    with comparing(stage, "emptied") as made_of_it:
        looks = made_of_it.run()
        next(looks)
        stage.run("truncate emptied", "insert into emptied values (1)")
        with pytest.raises(NotComparableError, match="truncated during the comparison"):
            list(looks)
        assert differing(made_of_it) == (1, [])


def test_what_an_owner_alters_meanwhile_runs_none_of_his_code(stage: Stage):
    stage.run(
        "create schema renaming",
        "create type renaming.color as enum ('a', 'b')",
        "create domain renaming.hue as renaming.color",
    )
    made(stage, "colored", "id renaming.hue primary key, n int", "insert into colored values ('a', 1), ('b', 2)")
    with comparing(stage, "colored") as comparison:
        key = ("a",)
        assert list(comparison.rows.by_key([key])[1]) == comparison.rows.in_order([key]) == [key]
        stage.run(
            "alter type renaming.color rename to other",
            """create function renaming.run(value text) returns boolean language plpgsql as
                $$ begin raise exception 'code of the owner ran'; end $$""",
            "create domain renaming.color as renaming.other check (renaming.run(value::text))",
        )
        for ask in (comparison.rows.in_order, comparison.rows.by_key):
            with pytest.raises(
                NotComparableError, match="the table was altered while it was compared; run the command again"
            ):
                ask([key])
    stage.run("drop table colored", "drop schema renaming cascade")
