"""The current states after DDL: each table under the name that it has, with all its rows, as the source has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
from psycopg import sql
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import moments
from lake.errors import ExportError
from lake.folding import current
from lake.iceberg.ledger import CatalogSettings
from lake.iceberg.publish import publish
from lake.states.plan import STATE
from lake.storage import identity, layout
from lake.storage.folder import DiskFolder
from pipeline.postgres import migrations
from pipeline.server import schedule
from tests.fixtures.iceberg_lake import iceberg_tables
from tests.fixtures.reading_tables import ReadingTables
from tests.spark import both_engines
from tests.spark.conftest import Pipeline
from tests.spark.test_state import fold, opened, past_state

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM, each log made once

TABLES = """
    create table public.moved (a int not null unique, b int not null unique, v text, primary key (a));
    create table public.renamed (id int primary key, first text, second text);
    create table public.one (id int primary key, v text);
    create table public.two (id int primary key, v text);
    create table public.recreated (id int primary key, v text);
    create table public.flag (id boolean primary key, v text);
    create table public.pair (x text, y numeric(8,2), z timestamptz, w boolean, v text, primary key (x, y))
"""
STEPS: Mapping[str, tuple[str, ...]] = {
    "rows": (
        """
        insert into public.moved select n, n + 3, 'moved ' || n from generate_series(1, 9) n;
        insert into public.renamed select n, 'first ' || n, 'second ' || n from generate_series(1, 9) n;
        insert into public.one select n, 'one ' || n from generate_series(1, 9) n;
        insert into public.two select n, 'two ' || n from generate_series(1, 7) n;
        insert into public.recreated select n, 'old ' || n from generate_series(1, 9) n;
        insert into public.flag values (true, 'flag');
        insert into public.pair select 'x"' || n, n + 0.5,
            '2026-01-01 00:00:00.5+00'::timestamptz + n * interval '1 day', n % 2 = 0, 'pair ' || n
        from generate_series(1, 9) n""",
    ),
    "keys moved, a column and its table renamed, a table made again": (
        """
        alter table public.moved drop constraint moved_pkey, add primary key (b);  -- to values that the old one has
        update public.moved set v = 'by b ' || b where b in (4, 5, 12);
        delete from public.moved where b = 6;
        update public.moved set b = 30 where b = 7;
        insert into public.moved values (40, 6, 'again')""",
        """
        alter table public.renamed rename first to third;
        alter table public.renamed rename to called;
        update public.called set third = 'written' where id = 1""",
        """
        drop table public.recreated;
        create table public.recreated (id int primary key, v text)""",
        "insert into public.recreated values (1, 'new')",
        """
        alter table public.pair drop constraint pair_pkey, alter z set not null, alter w set not null,
            add primary key (w, z);
        update public.pair set v = 'by w and z' where x = 'x"3';
        delete from public.pair where x = 'x"4'""",
    ),
    "another schema, names of tables swapped, a key moved back": (
        """
        update public.flag set id = false;
        create schema other; alter table public.called set schema other;
        delete from other.called where id = 2""",
        """
        begin;
        alter table public.one rename to aside;
        alter table public.two rename to one;
        alter table public.aside rename to two;
        update public.one set v = 'was two' where id = 1;
        update public.two set v = 'was one' where id = 2;
        commit""",
        """
        begin;
        update public.pair set v = 'last' where x = 'x"5';
        alter table public.pair drop constraint pair_pkey, add primary key (x, y);
        update public.pair set x = 'moved', v = 'first' where x = 'x"6';
        commit""",
    ),
    "names of columns swapped, a column replaced, a name given away while its table is not written": (
        """
        alter table other.called rename third to aside;
        alter table other.called rename second to third;
        alter table other.called rename aside to second;
        update other.called set third = 'swapped' where id = 3""",
        """
        alter table public.two drop v; alter table public.two add w text;
        insert into public.two values (20, 'new')""",
        """
        alter table public.one rename to put_aside;
        create table public.one (id int primary key, v text)""",
        "insert into public.one values (1, 'another')",
    ),
    "and that table written": ("update public.put_aside set v = 'is back' where id = 2",),
}
"""Of each table one change after the other; new tables are published after each text."""
ROWS, MOVED, SWAPPED, GIVEN_AWAY, _ = STEPS
COMPARED = {MOVED: ("public.moved", "public.pair"), SWAPPED: ("public.pair",)}
"""Tables that are folded by both engines after that step."""
HIDDEN = {GIVEN_AWAY: {"public.put_aside"}}
"""Tables that the log does not know to have that name yet."""


@dataclass
class Altered:
    """After each step: the seq, and what the source's tables had and readers found, by `schema.table`."""

    pipeline: Pipeline
    seqs: dict[str, int] = field(default_factory=dict)
    moments: dict[str, datetime] = field(default_factory=dict)
    wanted: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    found: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    iceberg: dict[str, dict[str, list[Any]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def altered(pipelines: Callable[..., AbstractContextManager[Pipeline]], spark: SparkSession) -> Iterator[Altered]:
    with pipelines() as pipeline:
        made = Altered(pipeline)
        pipeline.source.execute(TABLES.encode())
        for name, statements in STEPS.items():
            for each in statements:
                made.seqs[name] = pipeline.replicate(each)
                schedule.publish_new_tables(pipeline.config)
            made.wanted[name] = at_source(pipeline)
            [(made.moments[name],)] = pipeline.source.execute("select clock_timestamp()").fetchall()
            compare(pipeline, spark, COMPARED.get(name, ()))
            fold(pipeline, spark)
            made.found[name] = {folder.parent.name: in_lake(folder) for folder in latest(pipeline)}
            with opened(pipeline) as lake:
                publish(lake, CatalogSettings("lake"), 3600)
            made.iceberg[name] = {table: in_iceberg(each) for table, each in iceberg(pipeline).items()}
        yield made


def compare(pipeline: Pipeline, spark: SparkSession, tables: Sequence[str]) -> None:
    """Both engines make the same of these tables."""
    pipeline.export()
    with opened(pipeline) as lake:
        pending = [each for each in current.find_outdated(lake, 0.0) if each.dataset in tables]
        assert both_engines.assert_equal(spark, lake, pending) == len(tables)


def at_source(pipeline: Pipeline) -> dict[str, list[Any]]:
    tables = pipeline.source.execute(
        "select table_schema, table_name from information_schema.tables where table_schema in ('public', 'other')"
    ).fetchall()
    found = {}
    for schema, name in tables:
        cursor = pipeline.source.execute(sql.SQL("select * from {}").format(sql.Identifier(schema, name)))
        names = [column.name for column in cursor.description or ()]
        found[layout.dataset(schema, name)] = in_order([dict(zip(names, row, strict=True)) for row in cursor])
    return found


def latest(pipeline: Pipeline) -> list[Path]:
    return [folder for folder in pipeline.folder.glob("current/*/latest") if folder.exists()]


def in_lake(folder: Path) -> list[Any]:
    rows = ds.dataset(sorted(folder.glob("*.parquet"))).to_table().to_pylist()
    assert len({row["record_pk"] for row in rows}) == len(rows)
    return in_order(
        [{k: v for k, v in row.items() if k not in ("record_pk", "seq", "committed_at", "exact")} for row in rows]
    )


def iceberg(pipeline: Pipeline) -> dict[str, Table]:
    """The current states among the Iceberg tables, by `schema.table`."""
    with psycopg.connect(pipeline.dsn) as log:
        tables = iceberg_tables(log)
    return {name.removeprefix("current."): table for name, table in tables.items() if name.startswith("current.")}


def in_iceberg(table: Table, snapshot: int | None = None) -> list[Any]:
    rows = table.scan(snapshot_id=snapshot).to_arrow().drop_columns([*STATE]).to_pylist()
    return in_order(rows)


def in_order(rows: list[dict[str, Any]]) -> list[Any]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("step", STEPS)
def test_each_table_is_as_the_source_has_it_under_its_name(altered: Altered, step: str) -> None:
    wanted = {name: rows for name, rows in altered.wanted[step].items() if name not in HIDDEN.get(step, ())}
    assert altered.found[step].keys() == wanted.keys()
    for name, rows in wanted.items():
        assert altered.found[step][name] == rows, name


@pytest.mark.parametrize("step", STEPS)
def test_so_is_its_iceberg_table(altered: Altered, step: str) -> None:
    assert altered.iceberg[step] == altered.found[step]


def test_snapshots_of_before_the_ddl_are_read_as_they_were(altered: Altered) -> None:
    """Those that are left: where a name means another column by now, there are none."""
    steps = list(STEPS)
    read = 0
    for name, table in iceberg(altered.pipeline).items():
        for snapshot in table.metadata.snapshots:
            assert snapshot.summary
            step = steps[int(snapshot.summary["pipeline.commit"] or 0) - 1]
            rows = in_iceberg(table, snapshot.snapshot_id)
            assert rows in altered.wanted[step].values(), (name, step)
            read += 1
    assert read > len(altered.wanted[steps[-1]]), "no table has a snapshot of before"


@pytest.mark.parametrize("step", [MOVED, SWAPPED])
def test_so_it_is_as_of_any_seq(altered: Altered, step: str, spark: SparkSession, tmp_path: Path) -> None:
    """Also where that is inside of a file, whose changes go on after the DDL."""
    names = [name for name in altered.wanted[step] if name.startswith("public.")]
    for name in names:
        past_state(altered.pipeline, spark, name, altered.seqs[step], tmp_path / name)
        assert in_lake(tmp_path / name) == altered.wanted[step][name], name


def test_a_time_is_the_seq_before_the_first_later_commit(altered: Altered) -> None:
    with ledger.open_ledger(altered.pipeline.dsn) as book:
        lake = identity.open_for_reading(book, DiskFolder(altered.pipeline.folder))
        for step, after in pairwise(STEPS):
            assert altered.seqs[step] <= moments.seq_at(lake, altered.moments[step]) <= altered.seqs[after]
        with pytest.raises(ExportError, match=r"^the lake begins after 2020-01-01 00:00:00\+00:00; name a later time$"):
            moments.seq_at(lake, datetime(2020, 1, 1, tzinfo=UTC))
        with pytest.raises(ExportError, match=r"nothing that was committed after 2100-.* or name seq "):
            moments.seq_at(lake, datetime(2100, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("17", 17),
        ("2026-11-25T12:00:00Z", datetime(2026, 11, 25, 12, tzinfo=UTC)),
        ("2026-11-25 12:00", datetime(2026, 11, 25, 12, tzinfo=UTC)),
    ],
)
def test_as_of_takes_a_seq_or_a_time(text: str, parsed: object) -> None:
    assert moments.parse(text) == parsed


def test_as_of_takes_nothing_else() -> None:
    with pytest.raises(ExportError, match=r"^--as-of noon is neither a seq nor a time; write 1234, or 2026-11-25T12"):
        moments.parse("noon")


def test_what_is_not_known_is_refused_until_the_rows_are_read_again(
    altered: Altered, spark: SparkSession, tmp_path: Path
) -> None:
    """Behind the server's back a column takes the place of another, under its name."""
    pipeline = altered.pipeline
    before = altered.seqs[ROWS]
    doubtful = "alter table public.renewed drop v; alter table public.renewed add v text"
    pipeline.run("create table public.renewed (id int primary key, v text)")
    schedule.publish_new_tables(pipeline.config)
    pipeline.replicate("insert into public.renewed values (1, 'old'), (2, 'old')")
    fold(pipeline, spark)
    pipeline.replicate(f"{doubtful}; insert into public.renewed values (3, 'new'); insert into public.one values (50)")
    remedy = r"which columns of public.renewed .* \(v\).*`pipeline backfill start public.renewed`"
    with pytest.raises(ExportError, match=remedy):
        fold(pipeline, spark)
    assert in_lake(pipeline.folder / "current/public.one/latest") == at_source(pipeline)["public.one"], "others go on"
    with ReadingTables(pipeline) as reading:
        reading.finish(reading.begin("public.renewed", "asked"))
    fold(pipeline, spark)
    assert in_lake(pipeline.folder / "current/public.renewed/latest") == at_source(pipeline)["public.renewed"]
    pipeline.replicate("delete from public.renewed where id = 1; update public.renewed set v = 'known' where id = 2")
    fold(pipeline, spark)
    assert in_lake(pipeline.folder / "current/public.renewed/latest") == at_source(pipeline)["public.renewed"]
    past_state(pipeline, spark, "public.moved", before, tmp_path / "moved")


def test_a_lake_of_the_version_before_is_taken_over(altered: Altered, spark: SparkSession, tmp_path: Path) -> None:
    """Its ledger does not say of which table a file is: the files do, and all states are rebuilt."""
    pipeline = altered.pipeline
    pipeline.stop()  # a worker of this version counts in a table that is not there then
    migrations.downgrade(pipeline.dsn, "0025")
    [(files, schemas)] = pipeline.log.execute(
        "select files, schemas from pipeline.exports where state = 'committed' order by id limit 1"
    ).fetchall()
    assert {file["dataset"] for file in files} - {"messages"} < schemas.keys()
    migrations.upgrade(pipeline.dsn)
    with pytest.raises(ExportError, match="was by an older version of the server; run `pipeline export run`"):
        past_state(pipeline, spark, "public.moved", altered.seqs[ROWS], tmp_path / "moved")
    pipeline.replicate("insert into public.moved values (90, 91, 'last')")
    fold(pipeline, spark)
    wanted = at_source(pipeline)
    found = {folder.parent.name: in_lake(folder) for folder in latest(pipeline)}
    assert found.keys() == wanted.keys()
    for name, rows in wanted.items():
        assert found[name] == rows, name
    past_state(pipeline, spark, "public.moved", altered.seqs[ROWS], tmp_path / "moved")
    assert in_lake(tmp_path / "moved") == altered.wanted[ROWS]["public.moved"]
