"""A publication that publishes less than before leaves changes out without a word; the server does not."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import LiteralString

import psycopg
import pytest

from pipeline.capture.replication import prepare, still_published
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import publications, sources
from pipeline.capture.source.publications import Publisher
from pipeline.capture.source.walsender import application_name
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import PublicationChangedError, PublicationMissingError
from pipeline.operate.repair import adopt
from pipeline.server import schedule
from tests.fixtures.postgres import Cluster
from tests.fixtures.replicating import Replicating, catch_up
from tests.fixtures.waiting import eventually

GAP = (
    "changes that it did not publish are not in the log; the log has everything else up to "
    "[0-9A-F]+/[0-9A-F]+; `pipeline sources adopt` continues"
)


@pytest.fixture
def major() -> int:
    """The source's version; a test that wants another is parametrized with it."""
    return 18


@pytest.fixture
def source_cluster(major: int, clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(major)


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, note text); create table u (id int primary key)")
        yield connection


@pytest.fixture
def config(source: psycopg.Connection, source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    """Started once, with publications of our own."""
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop publication pipeline", 'publication "pipeline" was dropped'),
        ("drop publication pipeline_keyless", 'publication "pipeline_keyless" was dropped'),
        ("alter publication pipeline drop table t", 'publication "pipeline" no longer has table public.t'),
        (
            "alter publication pipeline drop table t; alter publication pipeline add table t",
            'publication "pipeline" lost table public.t and got it again, or publishes other rows or columns',
        ),
        ("alter publication pipeline set table t (id), u", 'publication "pipeline" lost table public.t'),
        ("alter publication pipeline set table t where (id > 0), u", 'publication "pipeline" lost table public.t'),
        ("alter publication pipeline set (publish = 'insert')", 'publication "pipeline" no longer publishes update'),
        (
            "alter publication pipeline set (publish_via_partition_root = true)",
            'publication "pipeline" has another publish_via_partition_root',
        ),
    ],
)
def test_less_is_published_while_we_are_away(
    config: Config, source: psycopg.Connection, change: LiteralString, said: str
):
    source.execute(change)
    with pytest.raises(PublicationChangedError, match=rf"^{said}.*{GAP}"):
        connect(config)
    assert adopt.adopt(config) is not None
    connect(config)


@pytest.mark.parametrize("major", [18, 15])
def test_a_publication_that_was_recreated_goes_on_after_the_gap(config: Config, source: psycopg.Connection):
    source.execute("drop publication pipeline; insert into t values (1); create publication pipeline for table t, u")
    with pytest.raises(PublicationChangedError, match=rf'^publication "pipeline" was dropped and recreated; {GAP}'):
        connect(config)
    assert adopt.adopt(config) is not None
    source.execute("insert into u values (3)")
    catch_up(config, [(1, "3")])


def test_the_slot_is_kept_where_a_table_was_left_out(config: Config, source: psycopg.Connection):
    source.execute("insert into t values (1); alter publication pipeline drop table t; insert into t values (2)")
    with pytest.raises(PublicationChangedError):
        connect(config)
    adopted = adopt.adopt(config)
    assert adopted is not None
    assert adopted.kept_slot
    source.execute("insert into t values (3)")
    catch_up(config, [(1, "1"), (1, "3")])


@pytest.mark.parametrize(
    "change",
    [
        "drop table u",
        "drop table u; create table u (id int primary key)",
        "alter table u rename to v",
        "alter table u drop constraint u_pkey",
        "create table v (id int primary key)",
        "alter table t drop column note",
        "alter publication pipeline owner to current_user",
    ],
)
def test_what_happens_to_tables_is_no_gap(config: Config, source: psycopg.Connection, change: LiteralString):
    source.execute(change)
    connect(config)
    schedule.publish_new_tables(config)
    connect(config)


def test_a_foreign_publication_may_grow_but_not_shrink(
    source: psycopg.Connection, source_dsn: str, database_dsn: str, slot_name: str
):
    source.execute("create publication theirs for table t")
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, publication="theirs")
    connect(config)
    source.execute("alter publication theirs add table u")
    connect(config)
    source.execute("alter publication theirs drop table u")
    with pytest.raises(PublicationChangedError, match=rf'^publication "theirs" no longer has table public.u; {GAP}'):
        connect(config)


def test_a_publication_by_schema(source: psycopg.Connection, source_dsn: str, database_dsn: str, slot_name: str):
    source.execute("create schema s; create publication theirs for tables in schema public, s")
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, publication="theirs")
    connect(config)
    source.execute("alter publication theirs drop tables in schema public")
    with pytest.raises(PublicationChangedError, match=rf'^publication "theirs" no longer has schema public; {GAP}'):
        connect(config)


@pytest.mark.parametrize("major", [18, 15])
@pytest.mark.parametrize("change", ["alter publication pipeline drop table u", "drop publication pipeline"])
def test_less_is_published_while_we_run(config: Config, source: psycopg.Connection, change: LiteralString):
    with Replicating(config) as replicating:
        replicating.wait_for([])
        source.execute(change)
        with pytest.raises(PublicationChangedError):
            schedule.publish_new_tables(config)
        source.execute("insert into u values (2)")
        assert isinstance(replicating.ended(), PublicationChangedError | PublicationMissingError)
    with pytest.raises(PublicationChangedError, match=GAP):
        connect(config)


def fail(*_: object) -> None:
    raise InterruptedError


def fail_after(original: Callable[..., object]) -> Callable[..., None]:
    def alter(*arguments: object) -> None:
        original(*arguments)
        raise InterruptedError

    return alter


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("change", ["alter table u drop constraint u_pkey", "create table v (id int primary key)"])
def test_a_change_of_our_own_that_is_cut_short_is_no_gap(
    config: Config, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, change: LiteralString, where: str
):
    source.execute(change)
    original = Publisher._alter
    with monkeypatch.context() as patched, pytest.raises(InterruptedError):
        patched.setattr(Publisher, "_alter", fail if where == "before" else fail_after(original))
        schedule.publish_new_tables(config)
    connect(config)
    schedule.publish_new_tables(config)
    connect(config)


def test_a_publisher_that_lost_its_place_half_way_is_waited_for(
    config: Config, source: psycopg.Connection, source_dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(publications, "LOCK_TIMEOUT", "60s")
    source.execute("alter table t drop constraint t_pkey")
    there, log = prepare.connect(config, name="left behind")
    ours, pipeline = prepare.connect(config, name="test")
    with there, log, ours, pipeline, psycopg.connect(source_dsn) as user:
        user.execute("alter publication pipeline drop table u")  # who drops t from it waits
        left_behind = threading.Thread(target=publish, args=(config, there, log))
        left_behind.start()
        eventually(lambda: waits_for_lock(source, "left behind"))
        pipeline.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'left behind' and datname = current_database()"
        )
        looking = threading.Thread(target=look, args=(config, ours, pipeline))
        looking.start()
        looking.join(0.7)
        user.rollback()
        left_behind.join()
        looking.join()
        assert source.execute("select pubname from pg_publication_tables where tablename = 't'").fetchall() == [
            ("pipeline_keyless",)
        ]
        look(config, ours, pipeline)


def publish(config: Config, source: psycopg.Connection, pipeline: psycopg.Connection) -> None:
    with suppress(psycopg.Error):
        prepare.publish_new_tables(config, source, pipeline)


def look(config: Config, source: psycopg.Connection, pipeline: psycopg.Connection) -> None:
    stored = sources.find(pipeline, config.source_id)
    assert stored is not None
    still_published.require_still_published(source, pipeline, stored.id)


def waits_for_lock(connection: psycopg.Connection, name: str) -> bool:
    query = "select from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
    return connection.execute(query, [name]).rowcount > 0


def test_a_key_replaced_before_the_first_change_is_known(config: Config, source: psycopg.Connection, database_dsn: str):
    source.execute("create table full_key (id int primary key, part int); alter table full_key replica identity full")
    schedule.publish_new_tables(config)
    source.execute("insert into full_key values (1, 2)")
    source.execute("alter table full_key drop constraint full_key_pkey, add primary key (part)")
    source.execute("insert into full_key values (2, 3)")
    catch_up(config, [(0, "1"), (0, "2")])
    with psycopg.connect(database_dsn) as log:
        rows = log.execute("select record_pk from public.sequin_events order by seq").fetchall()
    assert rows == [("1",), ("3",)]


def test_partitions_detached_or_dropped_before_any_change_are_known(
    config: Config, source: psycopg.Connection, database_dsn: str
):
    source.execute("""
        create table parted (id int, part int, primary key (part, id)) partition by list (part);
        create table parted_1 (part int not null, id int not null);
        alter table parted attach partition parted_1 for values in (1);
        create table parted_2 partition of parted for values in (2)""")
    schedule.publish_new_tables(config)
    source.execute("insert into parted (id, part) values (10, 1), (20, 2)")
    source.execute("alter table parted detach partition parted_1; drop table parted_2")
    source.execute("insert into parted_1 (id, part) values (11, 1)")
    catch_up(config, [(0, "10"), (0, "20"), (0, "11")])
    with psycopg.connect(database_dsn) as log:
        rows = log.execute("select source_table_name, record_pk from public.sequin_events order by seq").fetchall()
    assert rows == [("parted", "[10,1]"), ("parted", "[20,2]"), ("parted_1", "[1,11]")]
