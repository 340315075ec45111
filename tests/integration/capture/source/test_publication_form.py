"""A publication that the server made and that hides rows stops the server, until `sources adopt` restores it."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from pipeline.capture.replication import prepare
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import publication_ledger, sources
from pipeline.capture.source.walsender import application_name
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import PublicationChangedError
from pipeline.operate import status
from pipeline.operate.preflight import check
from pipeline.operate.repair import adopt
from pipeline.operate.verify import verify
from tests.fixtures.replicating import catch_up

FORMS = """select p.pubname::text, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
        array(select r.prrelid::regclass::text from pg_publication_rel r where r.prpubid = p.oid order by 1),
        exists (select from pg_publication_rel r
            where r.prpubid = p.oid and (r.prqual is not null or r.prattrs is not null))
    from pg_publication p order by 1"""
FILTER: LiteralString = "alter publication pipeline set table t where (id < 100), u"


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, note text); create table u (id int primary key)")
        yield connection


@pytest.fixture
def config(source: psycopg.Connection, source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    """Started once, with publications that the server made."""
    made = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    connect(made)
    return made


def connect(config: Config) -> None:
    """What the worker does before it streams."""
    source, pipeline = prepare.connect(config, name="test")
    with source, pipeline:
        stream = ReplicationStream(config.source, application_name(uuid.uuid4()))
        try:
            prepare.prepare(config, source, pipeline, stream.identify(), uuid.uuid4())
        finally:
            stream.close()


def store_as_it_is(config: Config) -> None:
    """What `sources adopt` of an earlier version did with a narrowed publication."""
    source, pipeline = prepare.connect(config, name="test")
    with source, pipeline:
        stored = sources.find(pipeline, None)
        assert stored is not None
        now = publication_ledger.read_publications(source, list(stored.published))
        sources.store_published(pipeline, stored.id, publication_ledger.to_json(now))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FILTER, 'publication "pipeline" sends only rows where (id < 100) of table public.t'),
        (
            "alter publication pipeline set table t (id), u",
            'publication "pipeline" sends only columns id of table public.t',
        ),
        (
            "alter publication pipeline set (publish = 'insert')",
            'publication "pipeline" publishes insert, not insert, update, delete, truncate',
        ),
        (
            "alter publication pipeline set (publish_via_partition_root = true)",
            'publication "pipeline" has publish_via_partition_root',
        ),
        (
            "alter publication pipeline_keyless set (publish = 'insert, update, delete, truncate')",
            'publication "pipeline_keyless" publishes insert, update, delete, truncate, not insert, truncate',
        ),
    ],
)
def test_a_narrowed_publication_stops_the_start_until_it_is_restored(
    config: Config, source: psycopg.Connection, change: LiteralString, said: str
) -> None:
    made = source.execute(FORMS).fetchall()
    source.execute(change)
    store_as_it_is(config)
    with pytest.raises(PublicationChangedError) as refused:
        connect(config)
    assert str(refused.value).startswith(f"{said}; changes that it did not publish are not in the log; ")
    adopted = adopt.adopt(config, reread=True)
    assert adopted is not None
    assert adopted.reasons[0].startswith(said)
    assert source.execute(FORMS).fetchall() == made
    source.execute("insert into t values (170, 'x'); update t set note = 'y'; delete from t")
    catch_up(config, [(1, "170")] * 3)


def test_a_publication_that_another_role_owns_is_named_with_the_statement(
    config: Config, source: psycopg.Connection, source_dsn: str
) -> None:
    source.execute(FILTER)
    role = f"poor_{secrets.token_hex(4)}"
    source.execute(sql.SQL("create role {} login replication").format(sql.Identifier(role)))
    try:
        source.execute(sql.SQL("grant select on all tables in schema public to {}").format(sql.Identifier(role)))
        poor = settings.load(source_dsn=psycopg.conninfo.make_conninfo(source_dsn, user=role),
                             database_dsn=config.database, slot=config.slot)  # fmt: skip
        with pytest.raises(PublicationChangedError) as refused:
            adopt.adopt(poor)
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))
    assert "this user cannot restore it (must be owner of publication pipeline)" in str(refused.value)
    for statement in str(refused.value).partition("let its owner run: ")[2].split("; "):
        source.execute(statement.encode())
    assert adopt.adopt(config) is not None
    connect(config)


def test_check_status_and_verify_name_a_narrowed_publication(config: Config, source: psycopg.Connection) -> None:
    said = 'publication "pipeline" sends only rows where (id < 100) of table public.t'
    assert verify.run(config, 1, 1000, lambda *_: None).ok
    source.execute(FILTER)
    store_as_it_is(config)
    (found,) = [finding for finding in check.run(config) if finding.level == "error" and finding.name != "port"]
    assert (found.name, found.text.startswith(said)) == ("publication", True)
    assert any(said in reason and "pipeline sources adopt" in reason for reason in status.collect(config).reasons)
    verified = verify.run(config, 1, 1000, lambda *_: None)
    assert [fault.wrong for each in verified.checks for fault in each.faults] == [said]


def test_filters_of_a_users_publication_are_named_and_kept(
    source: psycopg.Connection, source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    source.execute("create publication theirs for table t (id) where (id < 100), u")
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, publication="theirs")
    connect(config)
    said = {"public.t": 'publication "theirs" sends only rows where (id < 100) and only columns id of it'}
    assert status.collect(config).not_captured == said
    connect(config)
