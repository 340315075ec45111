"""What users of Sequin and walakka were promised: what no other test proves, and which tests prove the rest."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.postgres.embedded import Server
from tests.fixtures import test_decoding
from tests.fixtures.beside import Beside
from tests.fixtures.postgres import SETTINGS, free_port, unique
from tests.fixtures.server import ROOT, Serving, run_command
from tests.fixtures.waiting import eventually

_ORDER, _LARGE = (
    "integration/capture/replication/test_order_in_transaction.py",
    "integration/capture/replication/test_large_transactions.py",
)
_CAUGHT_UP, _KILLED = "acceptance/test_catching_up.py", "acceptance/test_killed_while_catching_up.py"
ELSEWHERE = {
    "every change is an event, a transaction's together": [
        (_ORDER, "test_three_updates_of_one_row_are_three_events_of_one_transaction"),
    ],
    "the place in the transaction counts from 0": [
        (_ORDER, "test_three_updates_of_one_row_are_three_events_of_one_transaction"),
    ],
    "one total order": [
        (_ORDER, "test_changes_have_one_total_order"),
        ("acceptance/test_pgbench_order.py", "test_events_equal_what_test_decoding_reports"),
    ],
    "large transactions keep it": [
        (_LARGE, "test_several_large_transactions_in_order"),
    ],
    "a delete wins in a work queue": [
        ("integration/readers/queue/test_apply.py", "test_the_last_change_of_a_row_stays_and_a_delete_wins"),
    ],
    "a legacy table goes on": [
        ("acceptance/test_legacy_log_at_boot.py", "test_a_legacy_table_is_migrated_at_boot"),
    ],
    "lag in bytes of each slot": [
        ("acceptance/test_slot_lag_and_limits.py", "test_lag_in_bytes_is_shown_per_slot"),
    ],
    "limits of catching up are settings": [
        ("unit/config/test_catchup_settings.py", "test_a_wrong_value_is_named"),
        ("acceptance/test_bad_input.py", "test_settings_that_are_wrong"),
        ("unit/capture/catchup/test_limits.py", "test_cores_decide_only_where_nothing_is_set"),
        ("acceptance/test_slot_lag_and_limits.py", "test_one_slot_goes_on_where_there_may_be_no_more"),
    ],
    "a backlog is read by several slots, and the tip meanwhile": [
        (_CAUGHT_UP, "test_slots_are_opened_up_to_the_tip"),
        (_CAUGHT_UP, "test_new_commits_are_staged_while_the_backlog_still_drains"),
    ],
    "the hand-over loses and repeats nothing": [
        (_CAUGHT_UP, "test_nothing_is_missing_double_or_out_of_order_across_the_hand_over"),
        ("integration/capture/catchup/test_catchup.py", "test_a_backlog_is_staged_in_parts_and_gives_the_same_log"),
    ],
    "nothing is left over of it": [
        (_CAUGHT_UP, "test_slots_and_workers_of_parts_are_gone"),
    ],
    "again and again": [
        (_CAUGHT_UP, "test_it_falls_behind_and_catches_up_again_and_again"),
        ("acceptance/test_slot_lag_and_limits.py", "test_one_slot_goes_on_where_there_may_be_no_more"),
    ],
    "the hand-over keeps the order": [
        (_CAUGHT_UP, "test_nothing_is_missing_double_or_out_of_order_across_the_hand_over"),
    ],
    "it survives kills": [
        (_KILLED, "test_ended_once_there_is_a_plan"),
        (_KILLED, "test_killed_helpers_and_a_killed_role_go_on_where_they_were"),
    ],
    "an idle slot keeps up": [
        (_ORDER, "test_the_position_advances_while_all_traffic_is_elsewhere"),
        ("acceptance/test_idle.py", "test_the_slot_keeps_up_where_nothing_is_for_us"),
    ],
}
"""Promise, and the tests that prove it, which are not here."""
HALF_STAGED = 80_000
BLOCKED_CHANGES = 40
AN_LSN = re.compile(r"[0-9A-F]+/[0-9A-F]+")
CONFIRMED = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"


@dataclass(frozen=True)
class Shop:
    """A source and its log, both open."""

    source: psycopg.Connection
    log: psycopg.Connection

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


@pytest.fixture
def shop(source_dsn: str, database_dsn: str) -> Iterator[Shop]:
    """With no server yet."""
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn, autocommit=True) as log:
        source.execute("create table t (id int primary key, v text)")
        yield Shop(source, log)


@pytest.mark.parametrize("promise", ELSEWHERE)
def test_what_proves_a_promise_is_there(promise: str):
    for path, name in ELSEWHERE[promise]:
        assert f"def {name}(" in (ROOT / "tests" / path).read_text()


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


def kill_before_confirming(shop: Shop, server: Serving, slot: str) -> None:
    """Kill all of it at a moment when something is in the log that is not confirmed."""
    with Writer(shop.source.info.dsn):

        def ahead() -> bool:
            at = confirmed(shop.source, slot)
            return len(keys := keys_in_log(shop.log)) > 100 and keys[-1][0] > at

        eventually(ahead)
        server.close()
    active = "select active_pid from pg_replication_slots where slot_name = %s"
    eventually(lambda: shop.source.execute(active, [slot]).fetchone() == (None,))


class Writer(Beside):
    """Transactions of two rows, one after the other."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            key = 0
            while not self.stopped.wait(0.002):
                key += 1
                source.execute("insert into t values (%s), (%s)", [key, -key])


def test_replayed_transactions_are_in_the_log_once(shop: Shop, serve: Callable[..., Serving], slot_name: str):
    server = serve(publication="p")
    kill_before_confirming(shop, server, slot_name)
    before, again = keys_in_log(shop.log), resent(shop.source, slot_name, "p,p_keyless")
    twice = set(before) & set(again)
    assert twice
    serve(publication="p")
    after = [(lsn, idx) for _, lsn, idx, *_ in shop.events("t")]
    assert after == [*before, *(key for key in again if key not in twice)]


def test_commit_idx_counts_what_is_published_also_after_a_kill_inside_of_the_transaction(
    shop: Shop, serve: Callable[..., Serving]
):
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
    assert "`PIPELINE_TABLES`" in (ROOT / "docs" / "delivery.md").read_text().split("## Guarantees")[0]


def test_confirmation_never_passes_an_unfinished_staging_commit(
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


def test_a_lost_slot_is_reported(
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
