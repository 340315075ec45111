"""Which tables our publications have: by pattern, owner and key; partitions beside their roots; what is reported."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.capture.source.publication_ledger import PublicationLedger, PublicationState, read_publications
from pipeline.capture.source.publications import Publisher
from tests.fixtures.postgres import Cluster, unique


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Iterator[str]:
    with cluster.database("published") as dsn:
        yield dsn


@pytest.fixture
def source(database: str) -> Iterator[psycopg.Connection]:
    """Empty again at the end."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
        connection.execute("drop publication if exists pipeline, pipeline_keyless")
        connection.execute("drop schema public cascade; create schema public")


def ledger(source: psycopg.Connection, stored: dict[str, PublicationState] | None = None) -> PublicationLedger:
    return PublicationLedger(source, stored or {}, lambda *_: None, lambda *_: None)


def ensure(source: psycopg.Connection, *patterns: str, made: dict[str, int] | None = None) -> dict[str, str]:
    """Make our publications or bring them up to date; returns what cannot be captured in full."""
    return Publisher(source, "pipeline", patterns).ensure(made or oids(source), ledger(source)).missing


def oids(source: psycopg.Connection) -> dict[str, int]:
    return dict(source.execute("select pubname::text, oid::bigint from pg_publication").fetchall())


def members(source: psycopg.Connection) -> dict[str, str]:
    """Tables by name, with the publication that has them."""
    query = "select c.relname, p.pubname from pg_publication_rel r join pg_publication p on p.oid = r.prpubid"
    return dict(source.execute(f"{query} join pg_class c on c.oid = r.prrelid").fetchall())


PARTITIONED = """
    create table t (id int primary key, note text) partition by range (id);
    create table a partition of t for values from (1) to (10);
    create table s partition of t for values from (10) to (20) partition by range (id);
    create table s1 partition of s default;
"""


def test_partitions_are_listed_beside_their_root(source: psycopg.Connection):
    source.execute(PARTITIONED)
    assert ensure(source) == {}
    assert members(source) == dict.fromkeys(("t", "a", "s", "s1"), "pipeline")


def test_a_partition_that_loses_its_identity_takes_no_other_with_it(source: psycopg.Connection):
    source.execute(PARTITIONED)
    ensure(source)
    source.execute("alter table a replica identity nothing; insert into t values (1), (10)")
    ensure(source)
    assert members(source) == {"t": "pipeline_keyless", "a": "pipeline_keyless", "s": "pipeline", "s1": "pipeline"}
    source.execute("update t set note = 'x'; delete from t")  # what would fail in a publication of updates
    assert list(Publisher(source, "pipeline", ()).missing(oids(source))) == ["public.a"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("public.t", {"t", "a", "s", "s1"}),
        ("public.s", {"s", "s1"}),
        ("public.a", {"a"}),
        ("public.line*", {"line\nbreak"}),
        ("*", {"t", "a", "s", "s1", "line\nbreak"}),
        ("T", set()),
    ],
)
def test_a_pattern_matches_a_table_or_what_it_is_part_of(source: psycopg.Connection, pattern: str, found: set[str]):
    source.execute(PARTITIONED + 'create table "line\nbreak" ()')
    assert {table.name for table in Publisher(source, "pipeline", [pattern]).tables()} == found


def test_what_is_missing_is_named_once(source: psycopg.Connection):
    source.execute(PARTITIONED + "create table empty (id int primary key) partition by list (id); create table u ()")
    source.execute("create publication pipeline for table a, empty")
    publisher = Publisher(source, "pipeline", ())
    assert list(publisher.missing({})) == ["public.s1", "public.u"]
    source.execute("alter publication pipeline set table u")
    assert list(publisher.missing({})) == ["public.empty", "public.t"]
    source.execute("alter publication pipeline set tables in schema public")
    assert publisher.missing({}) == {}


def test_a_second_foreign_publication_is_named_with_its_extra_tables(source: psycopg.Connection):
    source.execute("create table public.k (id int primary key)")
    source.execute("create table public.u (id int)")
    source.execute("create publication pipeline for table k")
    source.execute("create publication pipeline_keyless for table u with (publish = 'insert')")
    assert list(Publisher(source, "pipeline", ()).missing({})) == ["public.u"]


def test_a_table_of_somebody_else_is_reported_and_not_tried_again(
    source: psycopg.Connection, database: str, monkeypatch: pytest.MonkeyPatch
):
    role = unique("role")
    source.execute(f"create role {role} login; grant create on database {source.info.dbname} to {role}")
    source.execute("create schema hidden; create table hidden.t (id int primary key)")
    source.execute("create table theirs (id int primary key); create table mine (id int primary key)")
    source.execute(f"alter table mine owner to {role}; grant usage on schema public to {role}")
    source.execute(f"alter table hidden.t owner to {role}")
    monkeypatch.setattr(Publisher, "_one_by_one", None)  # would be called when a statement has failed
    try:
        with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as limited:
            for _ in range(2):
                assert list(ensure(limited)) == ["hidden.t", "public.theirs"]
            assert members(source) == {"mine": "pipeline"}
    finally:
        source.execute(f"drop schema hidden cascade; drop owned by {role} cascade; drop role {role}")


def test_publications_from_before_publish_generated_columns_from_now_on(source: psycopg.Connection):
    source.execute(
        "create table f (id int, g int generated always as (id) stored); alter table f replica identity full"
    )
    source.execute(
        "create table p (id int) partition by list (id); create table l partition of p (unique (id)) default"
    )
    source.execute("alter table l alter id set not null, replica identity using index l_id_key")
    source.execute("create publication pipeline with (publish = 'insert, update, delete, truncate')")
    source.execute("create publication pipeline_keyless for table f with (publish = 'insert, truncate')")
    ensure(source, made=oids(source))
    assert {
        name: publication.generated for name, publication in read_publications(source, list(oids(source))).items()
    } == {
        "pipeline": "s",
        "pipeline_keyless": "s",
    }
    assert members(source) == {"f": "pipeline", "p": "pipeline_keyless", "l": "pipeline"}
    source.execute("insert into f values (1); update f set id = 2")


def test_a_table_recreated_during_the_check_is_not_taken_for_the_old_one(source: psycopg.Connection):
    source.execute("create table t (id int primary key)")
    ensure(source)
    meanwhile = ["drop table t; create table t (id int primary key)"]

    def keep(*_: dict[str, PublicationState]) -> None:
        while meanwhile:
            source.execute(meanwhile.pop())

    publisher = Publisher(source, "pipeline", ())
    assert publisher.refresh(PublicationLedger(source, {}, keep, lambda *_: None)) == {
        "public.t": "another table has its name now; the next check finds both"
    }
    assert members(source) == {"t": "pipeline"}
    assert publisher.refresh(ledger(source)) == {}
