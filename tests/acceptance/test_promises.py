"""Guarantees that only a whole server shows; docs/internals/guarantees.md names the test of each guarantee."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures import test_decoding
from tests.fixtures.background import BackgroundThread
from tests.fixtures.data_directories import prepare
from tests.fixtures.lagging import stopped
from tests.fixtures.postgres import SETTINGS, free_port, unique
from tests.fixtures.server import ROOT, Serving, run_command
from tests.fixtures.waiting import eventually

HALF_STAGED = 40_000
HOLD = """
create function pipeline.held() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared(815); return new; end $$;
create trigger held before update on pipeline.replication_progress for each row
    when (old.open_changes > 0) execute function pipeline.held()
"""
"""Of a transaction of which something is staged, no more is."""
HELD = """
    select pid from pg_locks join pg_database d on d.oid = database
    where locktype = 'advisory' and not granted and datname = current_database()
"""
BLOCKED_CHANGES = 40
AN_LSN = re.compile(r"[0-9A-F]+/[0-9A-F]+")
CONFIRMED = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"


def events(source: psycopg.Connection, log: psycopg.Connection) -> list[tuple[Any, ...]]:
    """commit_lsn, commit_idx and `id` of t's events, by seq; everything committed has arrived."""
    token = unique("mark")
    test_decoding.send_mark(source, token)
    eventually(lambda: test_decoding.arrived(log, token), timeout=40)
    query = (
        "select commit_lsn, commit_idx, (record ->> 'id')::int from sequin_events"
        " where source_table_name = 't' order by seq"
    )
    return log.execute(query).fetchall()


def confirmed(source: psycopg.Connection, slot: str) -> int:
    row = source.execute(CONFIRMED, [slot]).fetchone()
    assert row is not None
    return int(row[0])


def resent(source: psycopg.Connection, slot: str, publications: str) -> list[tuple[int, int]]:
    """(commit_lsn, commit_idx) of the inserts that the slot would send now."""
    query = (
        "select data from pg_logical_slot_peek_binary_changes"
        "(%s, null, null, 'proto_version', '1', 'publication_names', %s)"
    )
    positions: list[tuple[int, int]] = []
    lsn = idx = 0
    for (data,) in source.execute(query, [slot, publications]):
        if data[:1] == b"B":
            lsn, idx = int.from_bytes(data[1:9]), 0
        elif data[:1] == b"I":
            positions.append((lsn, idx))
            idx += 1
    return positions


def keys_in_log(log: psycopg.Connection) -> list[tuple[int, int]]:
    query = "select commit_lsn, commit_idx from sequin_events where source_table_name = 't' order by seq"
    return [(lsn, idx) for lsn, idx in log.execute(query)]


def killed_before_confirming(source: psycopg.Connection, log: psycopg.Connection, server: Serving, slot: str) -> bool:
    """Kill all of it while it is written to; whether something was in the log then that was not confirmed."""

    def ahead() -> bool:
        at = confirmed(source, slot)
        return len(keys := keys_in_log(log)) > 100 and keys[-1][0] > at

    with Writer(source.info.dsn):
        eventually(ahead)
        server.close()
    active = "select active_pid from pg_replication_slots where slot_name = %s"
    eventually(lambda: source.execute(active, [slot]).fetchone() == (None,))
    return ahead()  # it may have confirmed just before it was killed


class Writer(BackgroundThread):
    """Transactions of two rows, one after the other."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            (key,) = source.execute("select coalesce(max(id), 0) from t").fetchone() or (0,)
            while not self.stopped.wait(0.004):
                key += 1
                source.execute("insert into t values (%s), (%s)", [key, -key])


def test_replayed_transactions_are_in_the_log_once(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving], slot_name: str
):
    while not killed_before_confirming(source, log, serve(publication="p"), slot_name):
        continue
    before, again = keys_in_log(log), resent(source, slot_name, "p,p_keyless")
    twice = set(before) & set(again)
    assert twice
    serve(publication="p")
    after = [(lsn, idx) for lsn, idx, _ in events(source, log)]
    assert after == [*before, *(key for key in again if key not in twice)]


def test_commit_idx_counts_published_changes_even_after_a_kill(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving]
):
    source.execute("create table other (id int primary key)")
    log.execute(HOLD)
    server = serve(tables="public.t")
    log.execute("select pg_advisory_lock(815)")
    source.execute(f"""
        do $$ begin for n in 1..10 loop
            insert into other values (n);
            insert into t select i * 10 + n from generate_series(1, {HALF_STAGED // 10}) i;
        end loop; end $$
    """)
    eventually(lambda: log.execute(HELD).rowcount == 1)
    server.close()
    log.execute(f"select pg_terminate_backend(pid) from ({HELD}) held")
    eventually(lambda: log.execute(HELD).rowcount == 0)
    log.execute("drop trigger held on pipeline.replication_progress; select pg_advisory_unlock(815)")
    staged = log.execute("select commit_lsn, commit_idx, record_pk from wal_events order by commit_idx").fetchall()
    assert 0 < len(staged) < HALF_STAGED
    serve(tables="public.t")
    arrived = [(lsn, idx, str(number)) for lsn, idx, number in events(source, log)]
    assert [idx for _, idx, _ in arrived] == [*range(HALF_STAGED)]
    assert arrived[: len(staged)] == staged
    assert "`PIPELINE_TABLES`" in (ROOT / "docs" / "events.md").read_text()


def test_confirmation_never_passes_an_unfinished_staging_commit(
    source: psycopg.Connection,
    log: psycopg.Connection,
    serve: Callable[..., Serving],
    slot_name: str,
    database_dsn: str,
):
    server = serve()
    source.execute("insert into t values (0)")
    assert len(events(source, log)) == 1
    with psycopg.connect(database_dsn) as blocker:
        blocker.execute("lock table pipeline.replication_progress in share mode")
        (stored,) = blocker.execute("select position from pipeline.replication_progress").fetchone() or (0,)
        for number in range(1, BLOCKED_CHANGES + 1):
            source.execute("insert into t values (%s)", [number])
            assert confirmed(source, slot_name) <= stored
            threading.Event().wait(0.05)
        waiting = "select from pg_locks where not granted and relation = 'pipeline.replication_progress'::regclass"
        eventually(lambda: log.execute(waiting).fetchone() is not None)
        server.close()
        assert confirmed(source, slot_name) <= stored
    serve()
    assert [number for *_, number in events(source, log)] == [*range(BLOCKED_CHANGES + 1)]


@pytest.fixture
def source_that_keeps_little_wal(server_directory: Path) -> Iterator[EmbeddedServer]:
    keeps = {"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    server = EmbeddedServer(server_directory, settings={**SETTINGS, **keeps}, port=free_port())
    prepare(server_directory, server.bin_dir)
    server.start()
    server.create_databases("shop")
    yield server
    server.stop("immediate")


def lose(source: psycopg.Connection, slot: str) -> None:
    """Write until the source gives the slot up."""
    query = "select wal_status from pg_replication_slots where slot_name = %s"

    def lost() -> bool:
        source.execute("create table if not exists filler (note text); insert into filler values ('x')")
        source.execute("select pg_switch_wal()")
        source.execute("checkpoint")
        return source.execute(query, [slot]).fetchone() == ("lost",)

    eventually(lost)


def test_a_lost_slot_is_reported(
    source_that_keeps_little_wal: EmbeddedServer,
    serve: Callable[..., Serving],
    database_dsn: str,
    slot_name: str,
    tmp_path: Path,
):
    source_dsn = source_that_keeps_little_wal.dsn("shop")
    server = serve(source_dsn=source_dsn)
    worker = server.child_pid("replication")
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        stopped(server.process.pid),  # which would start it again for its silence
        stopped(worker),
    ):
        lose(source, slot_name)
    assert server.process.wait(120) == 1
    names_it = [line for line in server.log().splitlines() if slot_name in line and AN_LSN.search(line)]
    assert names_it, server.log()
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
    status = run_command("status", "--json", folder=tmp_path, **settings)
    assert status.returncode == 1
    assert any("slot" in reason for reason in json.loads(status.stdout)["reasons"])
    check = run_command("check", "--json", folder=tmp_path, **settings)
    assert check.returncode == 1
    [slot] = [finding for finding in json.loads(check.stdout)["data"] if finding["name"] == "slot"]
    assert slot["level"] == "error"
