"""The end of a transaction that comes after all its rows were staged, with nothing behind it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pipeline.config import settings
from tests.fixtures.postgres import Cluster
from tests.fixtures.replicating import Replicating
from tests.fixtures.waiting import PATIENCE, eventually
from tests.torture.faults.proxy import Proxy
from tests.torture.faults.traps import Trap, streamed

STREAM = "pipeline "
STAGED_IN_PART = "select from pipeline.replication_progress where open_changes = 1"
NOTE = "select pg_logical_emit_message(true, 'note', '')"
FIRST = [(0, "0"), (0, None)]
ALL = [*FIRST, (0, "1"), (0, "2"), (0, None)]
POSITION = "select position from pipeline.replication_progress"


@pytest.fixture
def proxy(source_cluster: Cluster, source_dsn: str) -> Iterator[Proxy]:
    proxy = Proxy(int(str(conninfo_to_dict(source_cluster.tcp_dsn("postgres"))["port"])))
    yield proxy
    proxy.close()


def found(log: psycopg.Connection, query: str) -> bool:
    return log.execute(query.encode()).fetchone() is not None


def write(source: psycopg.Connection, statements: str) -> None:
    """Returns when the source has sent it."""
    source.execute(statements.encode())
    query = """
        select bool_and(sent_lsn >= pg_current_wal_flush_lsn()) from pg_stat_replication r
        join pg_stat_activity a using (pid) where a.datname = current_database()"""
    eventually(lambda: found(source, f"select from ({query}) as sent (all_of_it) where all_of_it"))


def test_the_end_alone_makes_it_whole(
    proxy: Proxy, source_cluster: Cluster, source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    """The message of the last transaction travels with the one before it, and is staged before its own end has come."""
    name = str(conninfo_to_dict(source_dsn)["dbname"])
    through = make_conninfo(source_cluster.tcp_dsn(name), port=proxy.port, sslmode="disable", gssencmode="disable")
    # Staged: what is written at once, or becomes a partition, are whole transactions.
    config = settings.load(
        source_dsn=through,
        database_dsn=database_dsn,
        slot=slot_name,
        small_batches="staged",
        adopt_threshold="off",
    )
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        source.execute("create table t (id int primary key)")
        with Replicating(config) as replicating:
            replicating.wait_until_streaming()
            source.execute("insert into t values (0)")
            source.execute(NOTE.encode())  # the prefix is known from now on: no worker waits for the catalog
            replicating.wait_for(FIRST)
            proxy.freeze(STREAM)
            write(source, "insert into t values (1)")  # what the proxy has read already when it stops
            write(source, f"begin; insert into t values (2); commit; begin; {NOTE}; commit")
            in_part = partial(eventually, lambda: found(log, STAGED_IN_PART))
            part = proxy.arm(Trap(STREAM, streamed(b"M"), in_part, when="after"))
            proxy.thaw(STREAM)
            part.wait(PATIENCE)
            replicating.wait_for(ALL)
            source.execute("select pg_logical_emit_message(false, 'elsewhere', repeat('x', 100000))")
            (end,) = source.execute("select pg_current_wal_flush_lsn() - '0/0'").fetchone() or (0,)
            eventually(lambda: (log.execute(POSITION).fetchone() or (0,))[0] >= end)
        with Replicating(config) as replicating:
            replicating.wait_for(ALL)
