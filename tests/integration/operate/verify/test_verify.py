"""`pipeline verify`: a correct log passes beside a running server, and each kind of damage is found and named."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import SchemaError
from pipeline.log.partitions import PartitionCreator
from pipeline.log.retention import policy
from pipeline.log.table import DEFAULT
from pipeline.operate.verify import verify
from pipeline.operate.verify.violations import SHOWN, LogVerification
from pipeline.postgres import queries
from tests.fixtures.background import BackgroundThread
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

SOURCE = uuid.UUID(int=7)
PARTITION = 4
PACE = 0.005
"""Seconds the load rests between two transactions."""
LAST, STAGED = 19, 500
ROW = (
    "insert into sequin_events (seq, source_database_id, source_epoch, commit_lsn, commit_idx, xid, source_table_oid,"
    " source_table_schema, source_table_name, record_pk, record, action, transaction_annotations, committed_at)"
    " values (%s, %s, %s, %s, %s, %s, 1, 'public', 't', '', '{}', %s, %s,"
    " timestamptz '2026-01-01' + %s * interval '1 s')"
)
# (seq of the first row, epoch, commit_lsn, rows: commit_idx, action, whether it is annotated)
TRANSACTIONS: list[tuple[int, int, int, list[tuple[int, str, bool]]]] = [
    (1, 0, 100, [(0, "insert", False), (1, "update", False), (2, "delete", False)]),
    (4, 0, 200, [(0, "insert", False), (2, "insert", True), (4, "insert", False)]),
    (7, 0, 300, [(0, "truncate", False), (1, "truncate", False), (2, "message", False)]),
    (10, 1, 50, [(1, "insert", True), (2, "insert", True)]),
    (16, 1, 60, [(0, "insert", False), (1, "insert", False), (2, "insert", False), (3, "insert", False)]),
]
COPY = (
    "drop table if exists c; create temp table c as select * from sequin_events where seq = {}; update c set seq = {};"
    + ("insert into sequin_events select * from c")
)
WAITING = """
    with r as (
        insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
            table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
        select id, 1, 1, 'public', 't', 1, 'public', 't', 'd', '[]', '{}', 0 from pipeline.sources returning id
    )
    insert into wal_events (commit_lsn, commit_idx, ordinal, relation_id, xid, committed_at, action, record_pk, record)
    select 300, 0, 0, id, 9, now(), 'insert', '', '{}' from r
"""
SAVED = (
    "public.sequin_events",
    "pipeline.sources",
    "pipeline.replication_progress",
    "pipeline.shuffle_progress",
)
DAMAGE = {
    "two rows swapped": ("update sequin_events set commit_idx = 3 - commit_idx where seq in (2, 3)", "order", 3),
    "two transactions swapped": ("update sequin_events set commit_lsn = 250 where seq <= 3", "order", 4),
    "a row twice, in another partition": (COPY.format(2, 14), "order", 14),
    "a row without a position": ("update sequin_events set commit_lsn = null where seq = 5", "order", 5),
    "a row missing inside": ("delete from sequin_events where seq = 17", "commit_idx", 18),
    "an annotated row missing inside": ("delete from sequin_events where seq = 5", "transactions", 6),
    "a first row missing": ("delete from sequin_events where seq = 7", "commit_idx", 8),
    "a first annotated row missing": ("delete from sequin_events where seq = 10", "events", 11),
    "a last row missing": ("delete from sequin_events where seq = 3", "events", 4),
    "a transaction missing": ("delete from sequin_events where seq between 7 and 9", "events", 10),
    "half of the newest transaction missing": ("delete from sequin_events where seq >= 18", "watermark", LAST),
    "a gap without an annotation": ("update sequin_events set commit_idx = 5 where seq = 3", "commit_idx", 3),
    "another xid": ("update sequin_events set xid = 9 where seq = 8", "transactions", 8),
    "another committed_at": ("update sequin_events set committed_at = now() where seq = 17", "transactions", 17),
    "the newest transaction missing": ("delete from sequin_events where seq >= 16", "events", None),
    "a watermark ahead of staging": ("update pipeline.shuffle_progress set commit_lsn = 600", "watermark", LAST),
    "a watermark ahead of what waits": (
        f"{WAITING}; update pipeline.shuffle_progress set commit_lsn = 400",
        "watermark",
        LAST,
    ),
    "a watermark behind": ("update pipeline.shuffle_progress set commit_lsn = 50", "watermark", LAST),
    "a watermark behind the rows": ("update pipeline.shuffle_progress set last_seq = 17", "watermark", 18),
    "a wrong count": ("update pipeline.shuffle_progress set events = 7", "events", None),
    "staged less than moved": ("update pipeline.replication_progress set position = 40", "positions", None),
    "a sequence behind": ("select setval('sequin_events_seq_seq', 5)", "positions", LAST),
}


def fill(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into pipeline.sources (id, epoch, system_identifier, database_name, slot)"
        " values (%s, 1, '1', 'd', 's')",
        [SOURCE],
    )
    PartitionCreator(connection, DEFAULT, rows=PARTITION).reserve(LAST + 2 * SHOWN)
    for xid, (first, epoch, lsn, rows) in enumerate(TRANSACTIONS):
        for seq, (idx, action, annotated) in enumerate(rows, first):
            connection.execute(ROW, [seq, SOURCE, epoch, lsn, idx, xid, action, "{}" if annotated else None, xid])
    connection.execute("select setval('sequin_events_seq_seq', %s)", [LAST])
    connection.execute(
        "insert into pipeline.replication_progress (source_id, epoch, position, commit_lsn) values (%s, 1, %s, %s)",
        [SOURCE, STAGED, STAGED],
    )
    connection.execute(
        "insert into pipeline.shuffle_progress (source_id, epoch, commit_lsn, committed_at, last_seq, events)"
        " select %s, 1, 60, max(committed_at), %s, count(*) from sequin_events",
        [SOURCE, LAST],
    )


def restore(connection: psycopg.Connection) -> None:
    connection.execute("truncate sequin_events, wal_events, pipeline.sources cascade")
    for table in SAVED:
        connection.execute(f"insert into {table} select * from saved.{table.split('.')[1]}")
    connection.execute("select setval('sequin_events_seq_seq', %s)", [LAST])


@pytest.fixture(scope="module")
def source_dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("source") as dsn:
        yield dsn


@pytest.fixture(scope="module")
def database_dsn(cluster: Cluster) -> Iterator[str]:
    """A correct log of five transactions in two epochs and five partitions; who damages it uses `log`."""
    with cluster.database("log", cluster.template) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            fill(connection)
            connection.execute("create schema saved")
            for table in SAVED:
                connection.execute(f"create table saved.{table.split('.')[1]} as table {table}")
        yield dsn


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    """The correct log, to be damaged; repaired afterwards."""
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        yield connection
        restore(connection)


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def verified(config: Config, from_seq: int = 1, range_rows: int = 1000) -> LogVerification:
    return verify.run(config, from_seq, range_rows, lambda *_: None)


def broken(found: LogVerification) -> dict[str, list[int | None]]:
    return {check.name: [fault.seq for fault in check.faults] for check in found.checks if check.broken}


def test_a_range_is_read_by_the_index_on_seq_and_not_sorted(log: psycopg.Connection):
    for setting in verify.SETTINGS:
        log.execute(f"set {setting}")
    rows = sql.SQL(queries.statement("operate.verify", "verify_rows")).format(events=DEFAULT.identifier)
    query = sql.SQL("explain " + queries.statement("operate.verify", "verify_range")).format(rows=rows)
    values = {**verify.NO_ROW, "source": SOURCE, "cut": False, "after": 3, "head": LAST, "limit": 8}
    plan = "\n".join(line for (line,) in log.execute(query, values))
    assert "Index Scan using sequin_events_000000000001_pkey" in plan
    assert not re.search("Sort|Seq Scan|Bitmap", plan), plan


@pytest.mark.parametrize("range_rows", [1, 2, 5, 1000])
def test_a_correct_log_passes_in_ranges_of_any_size(config: Config, range_rows: int):
    found = verified(config, range_rows=range_rows)
    assert broken(found) == {}
    assert (found.rows, found.transactions, found.last_seq) == (15, 5, LAST)
    assert {check.name: check.checked for check in found.checks} == {
        "order": 15,
        "commit_idx": 15,
        "transactions": 5,
        "watermark": 3,
        "events": 15,
        "positions": 2,
    }


def test_a_watermark_beyond_transactions_without_events_is_none(log: psycopg.Connection, config: Config):
    log.execute("select nextval('sequin_events_seq_seq')")
    log.execute(f"update pipeline.shuffle_progress set commit_lsn = {STAGED}, last_seq = {LAST + 1}")
    assert broken(verified(config)) == {}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_its_row_named(log: psycopg.Connection, config: Config, damage: str):
    statement, check, seq = DAMAGE[damage]
    for part in statement.split(";"):
        log.execute(part)
    found = broken(verified(config))
    assert seq in found[check], found
    assert broken(verified(config, range_rows=1)) == found


def test_from_a_seq_on_the_row_before_it_still_counts(log: psycopg.Connection, config: Config):
    log.execute("update sequin_events set commit_idx = 3 - commit_idx where seq in (2, 3)")
    assert broken(verified(config, from_seq=3)) == {"order": [3]}
    after = verified(config, from_seq=4)
    assert broken(after) == {}
    assert [check.not_checked for check in after.checks if check.name == "events"] == ["read from seq 4 only"]


def test_a_dropped_first_partition_takes_half_a_transaction_with_it(log: psycopg.Connection, config: Config):
    (first,) = log.execute("select tableoid::regclass::text from sequin_events where seq = 1").fetchone() or ("",)
    log.execute(f"alter table sequin_events detach partition {first}")
    found = verified(config)
    log.execute(f"alter table sequin_events attach partition {first} for values from (1) to ({1 + PARTITION})")
    assert broken(found) == {}
    assert "the first partition no longer exists" in [check.not_checked for check in found.checks]


@pytest.mark.parametrize("drop_at", [0, 2])
def test_what_retention_drops_before_or_meanwhile_is_no_fault(log: psycopg.Connection, config: Config, drop_at: int):
    (first,) = log.execute("select tableoid::regclass::text from sequin_events where seq = 1").fetchone() or ("",)

    def drop(_: int = 0, reached: int = 0, __: int = 0) -> None:
        if reached == drop_at:
            policy.record(log, DEFAULT, 1 + PARTITION)
            log.execute(f"alter table sequin_events detach partition {first}")

    drop()
    found = verify.run(config, 1, 2, drop)
    log.execute(f"alter table sequin_events attach partition {first} for values from (1) to ({1 + PARTITION})")
    log.execute("truncate pipeline.retention")
    assert broken(found) == {}
    assert found.first_seq == 1 + PARTITION
    assert "retention has dropped events below seq 5" in [check.not_checked for check in found.checks]


def test_rows_from_before_a_migration_are_counted_and_left_out(log: psycopg.Connection, config: Config):
    log.execute("update sequin_events set commit_lsn = null, commit_idx = null, xid = null where seq <= 3")
    log.execute("update pipeline.shuffle_progress set events = events - 3")
    found = verified(config)
    assert (broken(found), found.rows, found.unplaced, found.transactions) == ({}, 15, 3, 4)


def test_at_most_twenty_rows_a_check_are_named_and_the_rest_counted(log: psycopg.Connection, config: Config):
    log.execute("update pipeline.shuffle_progress set last_seq = 1000")
    for seq in range(20, 20 + 2 * SHOWN):
        log.execute(ROW, [seq, SOURCE, 0, 100, 0, 0, "insert", None, 0])
    for range_rows in (7, 1000):
        [order] = [check for check in verified(config, range_rows=range_rows).checks if check.name == "order"]
        assert (order.broken, [fault.seq for fault in order.faults]) == (2 * SHOWN, [*range(20, 20 + SHOWN)])


def test_a_slot_beyond_what_is_stored_is_a_fault(log: psycopg.Connection, config: Config):
    with psycopg.connect(config.source, autocommit=True) as source:
        source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [config.slot])
    found = verified(config)
    [fault] = next(check.faults for check in found.checks if check.name == "positions")
    assert fault.wrong.startswith(f'slot "{config.slot}" is confirmed up to ')
    assert fault.expected == "at most 0/1F4, which is stored"


def test_without_the_source_its_slot_is_said_not_to_be_checked(config: Config):
    found = verified(config.with_databases("host=127.0.0.1 port=1 dbname=gone", config.database))
    assert found.ok
    assert "Connection refused" in str(found.checks[-1].not_checked)


def test_a_database_that_was_never_migrated_is_a_plain_error(config: Config):
    with pytest.raises(SchemaError, match=r"^the pipeline database was never migrated; "):
        verified(config.with_databases(config.source, config.source))


READS = [(LAST + 1, 1), (LAST + 2, 2), (LAST + 3, 5), (LAST + 4, 6)]
"""seq and commit_idx."""


def append_reads(log: psycopg.Connection) -> None:
    """A transaction of rows that were read."""
    for seq, idx in READS:
        log.execute(ROW, [seq, SOURCE, 1, 70, idx, 9, "read", None, 9])
    log.execute(
        "update pipeline.shuffle_progress p set commit_lsn = 70, last_seq = %s, events = 19, committed_at ="
        " (select max(committed_at) from sequin_events)",
        [READS[-1][0]],
    )
    log.execute("select setval('sequin_events_seq_seq', %s)", [READS[-1][0]])


@pytest.mark.parametrize("range_rows", [1, 2, 1000])
def test_places_of_rows_that_were_read_begin_at_one_and_have_gaps(
    log: psycopg.Connection, config: Config, range_rows: int
):
    append_reads(log)
    found = verified(config, range_rows=range_rows)
    assert (broken(found), found.rows, found.transactions) == ({}, 19, 6)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("update sequin_events set action = 'insert' where commit_lsn = 70", {"commit_idx": [20, 22]}),
        ("update sequin_events set action = 'insert' where seq = 21", {"transactions": [21, 22]}),
        ("update sequin_events set action = 'insert', commit_idx = 0 where seq = 20", {"transactions": [21]}),
        ("update sequin_events set commit_idx = 2 where seq = 22", {"order": [22]}),
        ("update sequin_events set xid = 8 where seq = 23", {"transactions": [23]}),
        ("delete from sequin_events where seq = 21", {"transactions": [22], "events": [None, 16]}),
        ("update sequin_events set commit_idx = 4 where seq = 19", {"commit_idx": [19]}),
    ],
)
@pytest.mark.parametrize("range_rows", [1, 1000])
def test_damage_in_and_beside_rows_that_were_read_is_found(
    log: psycopg.Connection, config: Config, damage: str, expected: dict[str, list[int | None]], range_rows: int
):
    append_reads(log)
    log.execute(damage.encode())
    assert broken(verified(config, range_rows=range_rows)) == expected


@pytest.fixture
def command(tmp_path: Path, config: Config) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        names = {"source_dsn": config.source, "database_dsn": config.database, "slot": config.slot}
        return run_command("verify", *arguments, folder=tmp_path, **names)

    return run


def test_the_command_names_the_rows_and_fails(log: psycopg.Connection, command: Callable[..., Any]):
    log.execute("update sequin_events set xid = 9 where seq = 8")
    done = command()
    assert (done.returncode, done.stderr) == (1, "")
    assert "seq 8          0       0/12C        1     public.t   its xid is 9" in done.stdout
    assert "public.sequin_events from seq 1 to 19: 2 violations" in done.stdout
    found = json.loads(command("--json", "--range", "2").stdout)
    [check] = [check for check in found["checks"] if check["broken"]]
    assert (found["ok"], check["name"], check["broken"]) == (False, "transactions", 2)
    assert (check["faults"][0]["commit_lsn"], check["faults"][0]["commit_lsn_bytes"]) == ("0/12C", 300)


class Load(BackgroundThread):
    """Transactions of many forms until it is stopped."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def work(self) -> None:
        emit = "select pg_logical_emit_message(true, %s, %s)"
        with psycopg.connect(self._dsn, autocommit=True) as source:
            for round_ in count():
                if self.stopped.wait(PACE):
                    return
                with source.transaction():
                    source.execute("insert into t (note) select 'x' from generate_series(1, 30)")
                    source.execute(emit, ["pipeline:annotations", "{}"])
                    source.execute("update t set note = 'y' where id % 7 = 0")
                    source.execute(emit, ["sequin:transaction_annotations.clear", ""])
                    source.execute(emit, ["note", "hello"])
                    source.execute(emit, ["pipeline:annotations", "no JSON"])
                    source.execute(emit, ["note", "after a message that is no annotation"])
                if round_ % 10 == 0:
                    source.execute("truncate t, u")


class TestWithAServer:
    """On a pipeline database without a log that it made itself."""

    @pytest.fixture
    def database_dsn(self, cluster: Cluster) -> Iterator[str]:
        with cluster.database("events", cluster.template) as dsn:
            yield dsn

    def test_a_source_that_was_never_replicated_has_nothing_to_verify(self, config: Config):
        found = verified(config)
        assert (found.ok, found.checks) == (True, [])

    def test_beside_a_running_server_under_load_and_after_it(
        self, serve: Callable[..., Serving], config: Config, command: Callable[..., Any]
    ):
        with psycopg.connect(config.source, autocommit=True) as source:
            source.execute("create table t (id bigserial primary key, note text); create table u (id int primary key)")
        server = serve()
        seen: list[LogVerification] = []

        def more() -> bool:
            seen.append(verified(config, range_rows=500))
            assert broken(seen[-1]) == {}
            return len(seen) >= 5 and seen[-1].rows > 1000

        with Load(config.source):
            eventually(more, errors=())
        assert all(before.rows <= after.rows for before, after in pairwise(seen))
        assert server.stop() == 0
        done = command()
        assert (done.returncode, done.stderr) == (0, "")
        assert "ok   watermark      3 values" in done.stdout
        assert "no violations" in done.stdout
