"""Q1-Q5 and Q8 of Sequin's checklist, W9, W10 and W12 of walakka's: each as its "verify" column says it."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.embedded import Server
from tests.fixtures import test_decoding
from tests.fixtures.elsewhere import Noise, Watch, watch
from tests.fixtures.postgres import SETTINGS, Cluster, free_port, unique
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

ONE_SERVER = pytest.mark.xdist_group("checklists")  # for --dist loadgroup
WRITERS, EACH = 8, 25
MANY = 10_000
HALF_STAGED = 80_000
BLOCKED_CHANGES = 40
ELSEWHERE_SECONDS, SETTLED = 12, 5
MEGABYTE = 1_000_000
AN_LSN = re.compile(r"[0-9A-F]+/[0-9A-F]+")
CONFIRMED = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"


class Shop:
    """A source and its log, both open, and a name for a slot of its own."""

    def __init__(self, source: psycopg.Connection, log: psycopg.Connection) -> None:
        self.source = source
        self.log = log
        self.slot = unique("slot")

    def events(self, table: str) -> list[tuple[Any, ...]]:
        """seq, commit_lsn, commit_idx, action and record of a table, by seq; everything committed has arrived."""
        token = unique("mark")
        test_decoding.send_mark(self.source, token)
        eventually(lambda: test_decoding.arrived(self.log, token), timeout=40)
        query = (
            "select seq, commit_lsn, commit_idx, action, record from sequin_events"
            " where source_table_name = %s order by seq"
        )
        return self.log.execute(query, [table]).fetchall()


@pytest.fixture(scope="module")
def served(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One running server for the items that kill nothing; `other` and `noise` are not published."""
    with (
        cluster.database("source") as source_dsn,
        cluster.database("events", cluster.template) as database_dsn,
        opened(source_dsn, database_dsn) as shop,
    ):
        for table in ("t", "r", "many", "other"):
            shop.source.execute(f"create table {table} (id int primary key, v text)")
        settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": shop.slot}
        tables = {"tables": "public.t,public.r,public.many", "http_port": free_port()}
        server = Serving(tmp_path_factory.mktemp("served"), {**settings, **tables}, ("serve",))
        try:
            server.wait_ready()
            yield shop
        finally:
            server.close()


class opened:
    """Both databases' connections for a block."""

    def __init__(self, source_dsn: str, database_dsn: str) -> None:
        self._shop = Shop(psycopg.connect(source_dsn, autocommit=True), psycopg.connect(database_dsn, autocommit=True))

    def __enter__(self) -> Shop:
        return self._shop

    def __exit__(self, *_: object) -> None:
        self._shop.source.close()
        self._shop.log.close()


@pytest.fixture
def shop(source_dsn: str, database_dsn: str) -> Iterator[Shop]:
    """A source and a log of this test's own, with no server yet."""
    with opened(source_dsn, database_dsn) as both:
        both.source.execute("create table t (id int primary key, v text)")
        yield both


def confirmed(source: psycopg.Connection, slot: str) -> int:
    row = source.execute(CONFIRMED, [slot]).fetchone()
    assert row is not None
    return int(row[0])


def three_updates(shop: Shop, key: int) -> list[tuple[Any, ...]]:
    shop.source.execute("insert into r values (%s, 'v0')", [key])
    with shop.source.transaction():
        for value in ("v1", "v2", "v3"):
            shop.source.execute("update r set v = %s where id = %s", [value, key])
    return [event for event in shop.events("r") if event[3] == "update" and event[4]["id"] == key]


@ONE_SERVER
def test_q1_commit_lsn_and_index_from_0(served: Shop):
    updates = three_updates(served, 1)
    assert len({lsn for _, lsn, *_ in updates}) == 1
    assert [idx for _, _, idx, *_ in updates] == [0, 1, 2]


@ONE_SERVER
def test_q2_nothing_is_collapsed(served: Shop):
    assert [record["v"] for *_, record in three_updates(served, 2)] == ["v1", "v2", "v3"]


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


def kill_before_confirming(shop: Shop, server: Serving, slot: str) -> None:
    """Kill all of it at a moment when something is in the log that is not confirmed."""
    with Writer(shop.source.info.dsn) as writer:

        def ahead() -> bool:
            at = confirmed(shop.source, slot)
            return len(keys := keys_in_log(shop.log)) > 100 and keys[-1][0] > at

        eventually(ahead)
        server.close()
    assert writer.error is None
    active = "select active_pid from pg_replication_slots where slot_name = %s"
    eventually(lambda: shop.source.execute(active, [slot]).fetchone() == (None,))


class Writer(threading.Thread):
    """Transactions of two rows, one after the other."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self._stopped = threading.Event()
        self.error: BaseException | None = None

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as source:
                key = 0
                while not self._stopped.wait(0.002):
                    key += 1
                    source.execute("insert into t values (%s), (%s)", [key, -key])
        except BaseException as error:
            self.error = error


def test_q3_replay_dedupe(shop: Shop, serve: Callable[..., Serving], slot_name: str):
    server = serve(publication="p")
    kill_before_confirming(shop, server, slot_name)
    before, again = keys_in_log(shop.log), resent(shop.source, slot_name, "p,p_keyless")
    twice = set(before) & set(again)
    assert twice
    serve(publication="p")
    after = [(lsn, idx) for _, lsn, idx, *_ in shop.events("t")]
    assert after == [*before, *(key for key in again if key not in twice)]


@ONE_SERVER
def test_q4_total_order(served: Shop):
    dsn = served.source.info.dsn

    def write(writer: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as source:
            for number in range(EACH):
                with source.transaction():
                    source.execute("insert into t values (%s), (%s)", [writer * 1000 + number, -writer * 1000 - number])

    threads = [threading.Thread(target=write, args=[writer + 1]) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    positions = [(lsn, idx) for _, lsn, idx, *_ in served.events("t")]
    assert len(positions) >= WRITERS * EACH * 2
    assert positions == sorted(set(positions))


@ONE_SERVER
def test_q5_seq_never_collides(served: Shop):
    served.source.execute("insert into many select generate_series(1, %s::int)", [MANY])
    served.source.execute("insert into many values (0)")
    with served.source.cursor() as cursor, cursor.copy("copy many (id) from stdin") as copy:
        copy.write("".join(f"{-number}\n" for number in range(1, MANY + 1)))
    events = served.events("many")
    assert [record["id"] for *_, record in events] == [*range(1, MANY + 1), 0, *range(-1, -MANY - 1, -1)]
    seqs = [seq for seq, *_ in events]
    assert seqs == sorted(set(seqs))
    assert [lsn for _, lsn, *_ in events] == sorted(lsn for _, lsn, *_ in events)


@ONE_SERVER
def test_q8_index_counts_what_the_publication_lets_through(served: Shop):
    with served.source.transaction():
        for statement in ("insert into t values (0)", "insert into other values (1)", "insert into t values (-1)"):
            served.source.execute(statement)
    assert [idx for _, _, idx, *_ in served.events("t")][-2:] == [0, 1]
    words = Path(__file__).parents[2].joinpath("docs", "delivery.md").read_text()
    assert "`PIPELINE_TABLES`" in words.split("## Guarantees")[0]


def test_q8_index_is_the_same_after_a_kill_inside_of_the_transaction(shop: Shop, serve: Callable[..., Serving]):
    shop.source.execute("create table other (id int primary key)")
    server = serve(tables="public.t")
    shop.source.execute(f"""
        do $$ begin for n in 1..10 loop
            insert into other values (n);
            insert into t select i * 10 + n, '' from generate_series(1, {HALF_STAGED // 10}) i;
        end loop; end $$
    """)
    eventually(
        lambda: (
            shop.log.execute("select from pipeline.replication_progress where open_changes > 0").fetchone() is not None
        )
    )
    server.close()
    staged = shop.log.execute("select commit_lsn, commit_idx, record_pk from wal_events order by commit_idx").fetchall()
    assert 0 < len(staged) < HALF_STAGED
    serve(tables="public.t")
    events = [(lsn, idx, str(record["id"])) for _, lsn, idx, _, record in shop.events("t")]
    assert [idx for _, idx, _ in events] == [*range(HALF_STAGED)]
    assert events[: len(staged)] == staged


def test_w9_confirmation_never_passes_an_unfinished_staging_commit(
    shop: Shop, serve: Callable[..., Serving], slot_name: str, database_dsn: str
):
    server = serve()
    shop.source.execute("insert into t values (0)")
    assert len(shop.events("t")) == 1
    with psycopg.connect(database_dsn) as blocker:
        blocker.execute("lock table pipeline.replication_progress in share mode")
        (stored,) = blocker.execute("select position from pipeline.replication_progress").fetchone() or (0,)
        for number in range(1, BLOCKED_CHANGES + 1):
            shop.source.execute("insert into t values (%s)", [number])
            assert confirmed(shop.source, slot_name) <= stored
            threading.Event().wait(0.05)
        waiting = "select from pg_locks where not granted and relation = 'pipeline.replication_progress'::regclass"
        eventually(lambda: shop.log.execute(waiting).fetchone() is not None)
        server.close()
        assert confirmed(shop.source, slot_name) <= stored
    serve()
    assert [record["id"] for *_, record in shop.events("t")] == [*range(BLOCKED_CHANGES + 1)]


@ONE_SERVER
def test_w10_idle_slot_advances_while_traffic_is_elsewhere(served: Shop):
    dsn = served.source.info.dsn
    with Watch(dsn, served.slot) as slot, Noise(dsn):
        watch([slot], ELSEWHERE_SECONDS)
    assert max(sample.behind for sample in slot.samples if sample.at >= SETTLED) < MEGABYTE
    assert slot.samples[-1].written - slot.samples[0].written > 5 * MEGABYTE


@pytest.fixture
def frugal(server_directory: Path) -> Iterator[Server]:
    """A source that keeps little WAL for its slots."""
    keeps = {"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    server = Server(server_directory, settings={**SETTINGS, **keeps}, port=free_port())
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


def test_w12_lost_slot_is_reported(
    frugal: Server, serve: Callable[..., Serving], database_dsn: str, slot_name: str, tmp_path: Path
):
    source_dsn = frugal.dsn("shop")
    server = serve(source_dsn=source_dsn)
    worker = server.child_pid("replication")
    with psycopg.connect(source_dsn, autocommit=True) as source:
        os.kill(worker, signal.SIGSTOP)
        lose(source, slot_name)
        os.kill(worker, signal.SIGCONT)
    assert server.process.wait(40) == 1
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
