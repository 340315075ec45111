"""The pipeline database is restored from dumps at random moments under load: no reader takes one event for another."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pipeline.errors import PipelineError
from pipeline.followers import registry
from pipeline.operate import resync_follower
from pipeline.postgres import connections
from pipeline.postgres.embedded import Server
from tests.fixtures import followers
from tests.fixtures.background import BackgroundThread
from tests.fixtures.postgres import Cluster
from tests.fixtures.served_follower import Following
from tests.fixtures.server import run_command, serving
from tests.fixtures.waiting import eventually

DUMPS = 10
EVENTS = """
    select seq, source_epoch, commit_lsn, commit_idx, action, record_pk from sequin_events where seq > %s
    order by seq limit 500
"""
PATIENCE = 180


class Writer(BackgroundThread):
    """Orders come, change and go."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def work(self) -> None:
        numbers = random.Random(7)
        with psycopg.connect(self._dsn, autocommit=True) as source:
            for number in range(10**9):
                if self.stopped.is_set():
                    return
                source.execute("insert into orders values (%s, %s, 'new')", [number, f"state {number}"])
                source.execute("update orders set note = %s where id = %s", [str(number), numbers.randint(0, number)])
                source.execute("delete from orders where id = %s", [numbers.randint(0, number)])
                time.sleep(0.005)


class Reader(BackgroundThread):
    """`seq > last`: what each seq was, and those that were two."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn, self.last = dsn, 0
        self.seen, self.twice = dict[int, tuple[Any, ...]](), list[tuple[Any, ...]]()

    def work(self) -> None:
        while not self.stopped.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as log:
                    while not self.stopped.wait(0.02):
                        self._read(log)
            except psycopg.Error:
                self.stopped.wait(0.1)

    def _read(self, log: psycopg.Connection) -> None:
        for seq, *event in log.execute(EVENTS, [self.last]).fetchall():
            if seq in self.seen:
                self.twice.append((seq, self.seen[seq], event))
            self.seen[seq], self.last = tuple(event), seq


class Worker(BackgroundThread):
    """Receives the items of a queue, and acknowledges them: the last state of each order."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn, self.states = dsn, dict[str, str]()

    def work(self) -> None:
        while not self.stopped.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as log:
                    while not self.stopped.wait(0.02):
                        items = log.execute(
                            "select ack_id, record_pk, action, record ->> 'note' from pipeline.receive('q', 100)"
                        ).fetchall()
                        self.states |= {key: note if action != "delete" else "gone" for _, key, action, note in items}
                        log.execute("select pipeline.ack('q', %s::uuid[])", [[each[0] for each in items]])
            except psycopg.Error:
                self.stopped.wait(0.1)


class Restoring:
    """The pipeline database of `following`, which goes back to a dump."""

    def __init__(self, following: Following, cluster: Cluster, folder: Path) -> None:
        assert cluster.server is not None
        self.following, self._cluster, self._tools = following, cluster, cluster.server.bin_dir
        self.dsn, self._name, self._dump = following.log.info.dsn, following.log.info.dbname, folder / "dump"

    def dump(self) -> None:
        self._run("pg_dump", "-Fc", "-f", str(self._dump), self.dsn)

    def restore(self) -> None:
        """At this moment; the server is killed, and goes on in a new epoch."""
        following, name = self.following, sql.Identifier(self._name)
        following.server.kill()
        with self._cluster.connect() as administrator:
            administrator.execute(sql.SQL("drop database {} with (force)").format(name))
            administrator.execute(sql.SQL("create database {}").format(name))
        self._run("pg_restore", "-d", self.dsn, str(self._dump))
        given = {"source_dsn": following.source.info.dsn, "database_dsn": self.dsn, "slot": following.slot}
        done = run_command("sources", "adopt", "--reread", "--yes", folder=following.folder, **given)
        assert done.returncode == 0, done
        following.server = following.start()

    def settle(self) -> None:
        """Until the follower has what the source has; where it stopped, its tables are copied again."""

        def is_equal() -> None:
            with connections.connect(self.dsn, "pipeline database") as log:
                found = registry.find(log, "reports")[0]
                if found.state == "stopped" and "'*'" in str(found.remedy):
                    resync_follower.resync(log, "reports", ["*"])
            assert rows(self.following.there) == rows(self.following.source), (found.state, found.reason)

        eventually(is_equal, PATIENCE, (AssertionError, PipelineError, psycopg.Error))

    def _run(self, tool: str, *arguments: str) -> None:
        subprocess.run([self._tools / tool, *arguments], check=True, capture_output=True)


def rows(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("select t::text from orders t order by 1").fetchall()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_reader_takes_one_event_for_another_after_a_restore(
    following: Following, cluster: Cluster, tmp_path: Path
) -> None:
    moments, restoring = random.Random(11), Restoring(following, cluster, tmp_path)
    following.log.execute("select pipeline.create_consumer('q')")
    following.add()
    with ExitStack() as stack:
        reader, worker = Reader(restoring.dsn), Worker(restoring.dsn)
        for each in (reader, worker):
            stack.enter_context(each)
        for number in range(DUMPS):
            with Writer(following.source.info.dsn):
                threading.Event().wait(moments.uniform(0.2, 2))
                if number != 3:  # that one is restored twice
                    restoring.dump()
                threading.Event().wait(moments.uniform(0.2, 2))
                restoring.restore()
            following.source.execute("update orders set note = 'settled' || id")
            restoring.settle()
            require_all_seen(restoring.dsn, reader)
            following.source.execute("delete from orders")
        assert reader.twice == []
        following.source.execute("insert into orders select n, 'last ' || n, 'last' from generate_series(1, 50) n")
        restoring.settle()
        eventually(lambda: sum(note == "last" for note in worker.states.values()) == 50, PATIENCE)


def require_all_seen(dsn: str, reader: Reader) -> None:
    """The reader has every event that the log has now, and under the same seq."""
    with psycopg.connect(dsn, autocommit=True) as log:
        query = "select seq, source_epoch, commit_lsn, commit_idx, action, record_pk from sequin_events order by seq"
        found = log.execute(query).fetchall()
        eventually(lambda: reader.last >= found[-1][0], PATIENCE)
        for seq, *event in found:
            assert reader.seen.get(seq) == tuple(event), (seq, event, reader.last)


FOLDED = """
    select count(*) from (
        select distinct on (record_pk) action from sequin_events where source_table_name = 'orders'
        order by record_pk, seq desc
    ) newest where action <> 'delete'
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_reader_misses_an_event_when_a_standby_is_promoted_under_a_server(
    source_dsn: str, slot_name: str, server_directory: Path, tmp_path: Path
) -> None:
    """The standby lacks what was committed last; where the slot is ahead of it, the server stops, and adopts."""
    primary, standby = followers.primary_and_standby(server_directory)
    both = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} user=postgres target_session_attrs=read-write"
    dsn = f"{both} dbname=log"
    with psycopg.connect(primary.tcp_dsn("postgres"), autocommit=True) as administrator:
        administrator.execute("create database log")
    with psycopg.connect(source_dsn, autocommit=True) as source, serving(tmp_path, source_dsn, dsn, slot_name) as start:
        source.execute("create table orders (id int primary key, state text, note text)")
        server = start()
        with Reader(dsn) as reader:
            with Writer(source_dsn):
                eventually(lambda: reader.last > 100, PATIENCE)
                cut_off(standby)
                newest = reader.last
                eventually(lambda: reader.last > newest + 100, PATIENCE)
                primary.stop("immediate")
                with psycopg.connect(standby.tcp_dsn("postgres"), autocommit=True) as administrator:
                    administrator.execute("select pg_promote()")
                eventually(lambda: server.get("/readyz").status_code == 200 or "adopt" in server.log(), PATIENCE)
                newest = reader.last
                if "pipeline sources adopt" in server.log():
                    server.kill()
                    given = {"source_dsn": source_dsn, "database_dsn": dsn, "slot": slot_name}
                    done = run_command("sources", "adopt", "--reread", "--yes", folder=tmp_path, **given)
                    assert done.returncode == 0, done
                    server = start()
                eventually(lambda: reader.last > newest, PATIENCE)
            eventually(lambda: are_as_many(dsn, source), PATIENCE)
            require_all_seen(dsn, reader)
            assert reader.twice == []
        with psycopg.connect(dsn) as log:
            jumped = log.execute("select count(*) from pipeline.seq_jumps").fetchone()
            assert jumped is not None
            assert jumped[0] >= 1


def cut_off(standby: Server) -> None:
    """Nothing more arrives there."""
    with psycopg.connect(standby.tcp_dsn("postgres"), autocommit=True) as connection:
        connection.execute("alter system set primary_conninfo = ''")
        connection.execute("select pg_reload_conf()")
        eventually(lambda: connection.execute("select from pg_stat_wal_receiver").rowcount == 0)


def are_as_many(dsn: str, source: psycopg.Connection) -> bool:
    with psycopg.connect(dsn) as log:
        return log.execute(FOLDED).fetchone() == source.execute("select count(*) from orders").fetchone()
