"""Transactions that the source cannot send: what stands before is in the log, then a clear stop, and a way past it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from pipeline.capture.source import blocked_transactions
from pipeline.capture.source.blocked_transactions import BlockedTransaction
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import PipelineError, UndecodableChangeError
from pipeline.operate import status
from pipeline.operate.preflight import check
from pipeline.operate.repair import skip_transaction
from pipeline.operate.verify import verify
from pipeline.postgres import connections
from pipeline.server import schedule, serve
from pipeline.wal import lsn
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.replicating import catch_up, ended, events, replicate_first, run
from tests.fixtures.server import run_at_terminal, run_command
from tests.fixtures.shuffling import shuffle, stored

CREATE: LiteralString = (
    "create database {} template template0 encoding 'SQL_ASCII' locale_provider libc lc_collate 'C' lc_ctype 'C'"
)
SKIPPED = "select metadata ->> 'skipped' from public.sequin_events where metadata is not null order by seq"


@pytest.fixture
def source_dsn(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Iterator[str]:
    """A database that takes any bytes for text."""
    cluster = clusters(getattr(request, "param", 18))
    name = unique("ascii")
    with cluster.connect() as connection:
        connection.execute(sql.SQL(CREATE).format(sql.Identifier(name)))
    yield cluster.dsn(name)
    cluster.drop(name)


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    """Replicated once: the log has 1."""
    made = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    replicate_first(made, "id int primary key, v text")
    return made


def bad(number: int) -> str:
    return f"insert into t values ({number}, 'x'), ({number + 1}, E'\\xe9'), ({number + 2}, 'y')"


def stopped(config: Config, timeout: float = 60) -> BlockedTransaction:
    """Where it stops, once it has; what is staged is in the log then."""
    error = ended(config, timeout)
    assert isinstance(error, UndecodableChangeError), error
    shuffle(config.database)
    return current(config)


def current(config: Config) -> BlockedTransaction:
    with connections.connect(config.database, "pipeline database") as log:
        stop = blocked_transactions.current(log, stored(log).id)
    assert stop is not None
    return stop


def skip(config: Config, stop: BlockedTransaction) -> str:
    with connections.connect(config.database, "pipeline database") as log:
        found = skip_transaction.find(config, log, lsn.show(stop.commit_lsn))
        return skip_transaction.request(config, log, found)


def marks(config: Config) -> list[str]:
    with psycopg.connect(config.database) as log:
        return [row[0] for row in log.execute(SKIPPED)]


def assert_verified(config: Config) -> None:
    found = verify.run(config, 1, 1000, lambda *_: None)
    assert [check.faults for check in found.checks if check.broken] == []


def test_what_came_before_is_in_the_log_and_the_stop_is_named(config: Config):
    run(
        config,
        "insert into t values (2, 'b')",
        "insert into t values (3, 'c')",
        bad(4),
        "insert into t values (9, 'd')",
    )
    stop = stopped(config)
    assert events(config) == [(0, "1"), (0, "2"), (0, "3")]
    assert stop.changes >= 1 and stop.sqlstate == "22021" and "invalid byte sequence" in stop.cause
    at = lsn.show(stop.commit_lsn)
    now = status.collect(config)
    assert f"replication: the source cannot send the transaction that commits at {at}" in now.reasons[0]
    assert f"`pipeline sources skip-transaction {at}`" in now.reasons[0]
    found = {finding.name: finding.level for finding in check.run(config)}
    assert found["source stops"] == "error"
    serve.boot(config)  # waits there for an administrator, and for the skipped transaction
    again = stopped(config)
    assert again == stop and len(events(config)) == 3


def test_the_command_says_what_is_lost_and_asks_before_it_skips(config: Config, tmp_path: Path):
    run(config, bad(2))
    at = lsn.show(stopped(config).commit_lsn)
    given = {"source_dsn": config.source, "database_dsn": config.database, "slot": config.slot}
    for asked, status_, said in (
        (run_command("sources", "skip-transaction", at, folder=tmp_path, **given), 2, "add --yes"),
        (run_at_terminal("yes", "sources", "skip-transaction", at, folder=tmp_path, **given), 1, "nothing was changed"),
    ):
        assert (asked.returncode, said in asked.stderr) == (status_, True), asked
        assert at in asked.stdout and current(config).requested_at is None
    agreed = run_at_terminal(at, "sources", "skip-transaction", at, folder=tmp_path, **given)
    assert agreed.returncode == 0 and current(config).requested_at is not None


def test_only_the_transaction_at_which_it_stops_can_be_skipped(config: Config):
    with connections.connect(config.database, "pipeline database") as log:
        with pytest.raises(PipelineError, match="is not stopped at a transaction"):
            skip_transaction.find(config, log, "0/1")
        run(config, bad(2))
        stop = stopped(config)
        with pytest.raises(PipelineError, match=f"the source is stopped at {lsn.show(stop.commit_lsn)}, not at 0/1"):
            skip_transaction.find(config, log, "0/1")
        with pytest.raises(PipelineError, match="expected an LSN such as"):
            skip_transaction.find(config, log, "here")


@pytest.mark.parametrize("source_dsn", [18, 15], indirect=True)
def test_several_in_a_row_are_skipped_one_by_one_and_what_is_between_stays(config: Config):
    run(config, bad(10), bad(20), "insert into t values (2, 'b')", bad(30), "insert into t values (3, 'c')")
    with psycopg.connect(config.database) as log:
        log.execute("create publication everything for all tables")  # somebody's, of which staging asks nothing
    skipped = []
    for _ in range(3):
        stop = stopped(config)
        skipped.append(lsn.show(stop.commit_lsn))
        assert "the next `pipeline serve`" in skip(config, stop)
    expected = [(0, "1"), (0, None), (0, None), (0, "2"), (0, None), (0, "3")]
    for _ in range(2):  # started again, it knows where to begin
        catch_up(config, expected)
    assert marks(config) == skipped
    assert_verified(config)
    with psycopg.connect(config.database) as log:
        row = log.execute(
            "select action, source_table_name, commit_idx, record ->> 'content', xid > 0,"
            " committed_at > now() - interval '1 hour' from public.sequin_events where metadata ? 'skipped' limit 1"
        ).fetchone()
    assert row is not None and row[:3] == ("message", "pipeline:skipped_transaction", 0)
    assert "the source could not send it (invalid byte sequence" in row[3] and row[4:] == (True, True)


@pytest.mark.parametrize("after", ["it was recorded", "it was staged"])
def test_a_crash_while_it_is_passed_over_skips_it_once(config: Config, monkeypatch: pytest.MonkeyPatch, after: str):
    """The slot is not confirmed beyond it when the worker dies right after, or before, that transaction commits."""
    from pipeline.capture.replication import stream, undecodable

    run(config, bad(2), "insert into t values (9, 'd')")
    skip(config, stopped(config))
    owner, name = (undecodable, "statement") if after == "it was recorded" else (stream.ReplicationStream, "start")

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        assert isinstance(ended(config), RuntimeError)
    catch_up(config, [(0, "1"), (0, None), (0, "9")])
    assert len(marks(config)) == 1
    assert_verified(config)


def test_a_source_that_can_send_it_after_all_stops_no_more(config: Config):
    with connections.connect(config.database, "pipeline database") as log:
        source_id = stored(log).id
        with psycopg.connect(config.source, autocommit=True) as source:
            row = source.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, now()").fetchone()
        assert row is not None
        blocked_transactions.record(
            log, source_id, BlockedTransaction(0, int(row[0]), row[1], 1, 0, "too large", "54000")
        )
        assert blocked_transactions.current(log, source_id) is not None
        run(config, "insert into t values (2, 'b')")
        catch_up(config, [(0, "1"), (0, "2")])
        assert blocked_transactions.current(log, source_id) is None
        assert not blocked_transactions.request_skip(log, source_id, int(row[0]))


@pytest.mark.long
def test_a_row_whose_text_is_over_a_gigabyte(config: Config):
    """Its values compress well, so that it costs little but the memory of the walsender."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if available < 4_000_000_000:
        pytest.skip(f"the walsender needs 4 GB of memory, and {available:,} bytes are free")
    value = "convert_to(repeat('x', 300000000), 'UTF8')"
    run(config, "create table large (id int primary key, a bytea, b bytea)")
    schedule.publish_new_tables(config)
    run(config, "insert into large values (2, 'a', 'b')")
    catch_up(config, [(0, "1"), (0, "2")])
    run(config, f"insert into large values (3, {value}, {value})", "insert into large values (4, 'a', 'b')")
    stop = stopped(config, 240)
    assert "memory" in stop.cause or "string buffer" in stop.cause, stop
    skip(config, stop)
    catch_up(config, [(0, "1"), (0, "2"), (0, None), (0, "4")])
