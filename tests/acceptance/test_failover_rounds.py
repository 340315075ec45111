"""Failovers of the source under load: nothing is missing, nothing is there twice, and the epoch is the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.fixtures.failing_over import PHYSICAL, FailoverPair, ask
from tests.fixtures.server import run_command, serving
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long
WAITED_FOR = {"synchronized_standby_slots": PHYSICAL}
LOGGED = """
select coalesce(array_agg(id order by id), '{}'), (select count(*) from pipeline.epochs)
from (select (record ->> 'id')::int as id from sequin_events) logged
"""
CATCHING_UP = {"catchup_threshold": "1MB", "catchup_interval": 0.1, "catchup_max_slots": 3, "adopt_threshold": "off"}


class Rounds:
    """A pair of clusters, a table, and a server that reads it."""

    def __init__(self, pair: FailoverPair, database_dsn: str) -> None:
        self.pair, self.database_dsn, self._last = pair, database_dsn, 0
        ask(pair.primary, "create table t (id int primary key, filler text)")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write inside of the block, at whichever host is the primary."""
        stopped = threading.Event()

        def write() -> None:
            while not stopped.is_set():
                with suppress(psycopg.Error), psycopg.connect(self._dsn(), autocommit=True) as source:
                    while not stopped.is_set():
                        self.insert(source, 5)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _dsn(self) -> str:
        return make_conninfo(self.pair.dsn, target_session_attrs="primary", connect_timeout=2)

    def insert(self, source: psycopg.Connection, rows: int) -> None:
        first, self._last = self._last + 1, self._last + rows
        query = "insert into t select id, repeat(md5(id::text), 30) from generate_series(%s::int, %s::int) id"
        source.execute(query, [first, self._last])

    def write_megabytes(self, number: int) -> None:
        with psycopg.connect(self._dsn(), autocommit=True) as source:
            for _ in range(number):
                self.insert(source, 1000)

    def require_exact(self) -> None:
        """Require that the log has each row of the new primary once, and no other."""
        rows = ask(self.pair.primary, "select coalesce(array_agg(id order by id), '{}') from t")
        with psycopg.connect(self.database_dsn, autocommit=True) as log:
            eventually(lambda: log.execute(LOGGED).fetchone() == (rows, 1), 120)


def test_three_failovers_lose_and_repeat_nothing(
    server_directory: Path, database_dsn: str, slot_name: str, tmp_path: Path
) -> None:
    pair = FailoverPair(server_directory, WAITED_FOR)
    rounds = Rounds(pair, database_dsn)
    with serving(tmp_path, pair.dsn, database_dsn, slot_name) as start:
        server = start(snapshot="never", **CATCHING_UP)
        with rounds.writing():
            pair.wait_until_synced(slot_name)
            pair.primary.stop()  # planned
            pair.promote()
            pair.follow()
            ask(pair.standby, "select pg_drop_replication_slot(%s)", slot_name)
            pair.wait_until_synced(slot_name)
        rounds.require_exact()
        with rounds.writing():
            threading.Event().wait(1)
            pair.primary.stop("immediate")  # a crash
            pair.promote()
            pair.rebuild()
            pair.wait_until_synced(slot_name)
        rounds.require_exact()
        assert server.stop() == 0
        rounds.write_megabytes(20)
        pair.wait_until_replayed()
        pair.standby.stop()
        rounds.write_megabytes(20)  # which no standby has
        server = start(wait=False, snapshot="never", **CATCHING_UP)
        eventually(lambda: "slots read at once" in server.log())
        pair.primary.stop("immediate")  # in the middle of a catch-up
        pair.standby.start()
        pair.promote()
        pair.rebuild()
        rounds.require_exact()
        settings = {"source_dsn": pair.dsn, "database_dsn": database_dsn, "slot": slot_name}
        done = run_command("verify", folder=tmp_path, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
