"""The published tables are those of Postgres' own view, found without waiting for a locked table."""

from __future__ import annotations

import random
from collections.abc import Sequence

import psycopg
import pytest

from pipeline.capture.source import published_relations
from pipeline.config import settings
from pipeline.postgres import connections, session_settings
from tests.fixtures.replicating import Replicating
from tests.fixtures.shuffling import move, shuffler
from tests.fixtures.waiting import eventually

TABLES = """
    create schema s;
    create table plain (id int primary key, gone int, note text, made int generated always as (id * 2) stored);
    alter table plain drop column gone;
    create table s.named (id int primary key, "Odd name" text);
    create table parted (id int, gone int, n int, primary key (id)) partition by range (id);
    create table s.low partition of parted for values from (0) to (10);
    create table high (n int, id int primary key) partition by range (id);
    alter table parted drop column gone;
    alter table parted attach partition high for values from (10) to (30);
    create table higher partition of high for values from (20) to (30)"""
NAMES = ("plain", "s.named", "parted", "s.low", "high", "higher")
WHAT = ("", "(id)", " where (id > 1)", "(id) where (id < 9)")
SEEN = """
    select c.oid::bigint, array_agg(distinct name::text order by name::text),
        case when bool_or(p.rowfilter is null) then null else string_agg(distinct '(' || p.rowfilter || ')', ' or ') end
    from pg_class c
    join pg_publication pub on pub.pubname = any(%(publications)s) and pub.pubinsert
    join pg_publication_tables p on p.pubname = pub.pubname and (p.schemaname, p.tablename) in (
        select n.nspname, r.relname from pg_class r join pg_namespace n on n.oid = r.relnamespace
        where r.oid = c.oid or r.oid in (select relid from pg_partition_ancestors(c.oid)))
    cross join unnest(p.attnames) name
    where c.relkind = 'r'
        and (c.oid = %(oid)s or c.oid in (select relid from pg_partition_tree(%(oid)s::oid) where isleaf))
    group by c.oid order by c.oid"""


def publications(chance: random.Random) -> Sequence[str]:
    """Statements that make some, and of which Postgres refuses a few."""
    found = []
    for number in range(chance.randrange(1, 4)):
        members = [f"table {name}{chance.choice(WHAT)}" for name in NAMES if chance.random() < 0.4]
        members += ["tables in schema " + chance.choice(("s", "public"))] if chance.random() < 0.2 else []
        whole = "all tables" if chance.random() < 0.15 else ", ".join(members)
        options = f"publish_via_partition_root = {chance.choice(('true', 'false'))}"
        options += chance.choice(("", "", ", publish = 'update'"))
        found.append(f"create publication p{number} {'for ' + whole if whole else ''} with ({options})")
    return found


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_it_is_what_the_view_of_postgres_says(source_dsn: str, seed: int):
    chance, found = random.Random(seed), 0
    with connections.connect(source_dsn, "source", settings=session_settings.SERVER) as source:
        source.execute(TABLES.encode())
        for _ in range(40):
            names = []
            for statement in publications(chance):
                try:
                    source.execute(statement.encode())
                except psycopg.Error:
                    continue
                names.append(statement.split()[2])
            for name in NAMES:
                row = source.execute("select %s::regclass::oid::bigint", (name,)).fetchone()
                assert row is not None
                ours = [
                    (each.oid, sorted(each.columns or []), each.condition)
                    for each in published_relations.read(source, row[0], names)
                ]
                seen = source.execute(SEEN, {"oid": row[0], "publications": names}).fetchall()
                assert ours == [(oid, sorted(columns), condition) for oid, columns, condition in seen]
                found += len(ours)
            source.execute("".join(f"drop publication {name};" for name in names).encode())
    assert found > 100


def test_a_locked_table_does_not_hold_up_the_stream(source_dsn: str, database_dsn: str, slot_name: str):
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, snapshot="never")
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(source_dsn) as other,
        connections.connect(database_dsn, "pipeline database") as log,
    ):
        source.execute(
            "create table locked (id int primary key); create table free (id int);"
            "create table keyed (id int primary key)"
        )
        with Replicating(config) as replicating:
            replicating.wait_until_streaming()
            other.execute("lock table locked")
            source.execute("insert into free values (1); insert into keyed values (1)")
            source.execute("alter table keyed add note text; insert into keyed values (2, 'b')")

            def arrived() -> None:
                move(shuffler(log))
                found = log.execute("select count(*) from sequin_events where action = 'insert'").fetchone()
                assert found == (3,)

            eventually(arrived)
            other.rollback()
