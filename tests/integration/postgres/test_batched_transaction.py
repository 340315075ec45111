"""What a transaction of the shuffler guesses, so as to be a few messages, is found out when it is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from pipeline.errors import FencedError
from pipeline.log.shuffling.shuffler import Shuffler
from pipeline.postgres import batched_transaction, connections
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, insert, staging_of


@pytest.fixture(scope="module")
def staged_log(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as staged_log:
        yield staged_log


@pytest.fixture
def shuffler(staged_log: Staged) -> Shuffler:
    """One that has moved two transactions already, so that it guesses from then on."""
    staged_log.reset()
    shuffler = staged_log.shuffler()
    for number in (1, 2):
        staged_log.commit(insert("orders", id=str(number)))
        assert shuffler.step() == 1
    return shuffler


def seqs(staged_log: Staged) -> list[int]:
    return [
        seq for (seq,) in staged_log.connection.execute("select seq from sequin_events order by commit_lsn, commit_idx")
    ]


def test_seqs_that_somebody_has_taken_are_not_given_again(staged_log: Staged, shuffler: Shuffler):
    staged_log.connection.execute("select setval('sequin_events_seq_seq', 5000)")
    staged_log.commit(insert("orders", id="3"))
    assert shuffler.step() == 1
    staged_log.commit(insert("orders", id="4"))
    assert shuffler.step() == 1
    assert seqs(staged_log)[2:] == [5001, 5002]


def test_a_watermark_that_has_moved_fences_it(staged_log: Staged, shuffler: Shuffler):
    staged_log.commit(insert("orders", id="3"))
    with staged_log.connection.transaction():
        staged_log.connection.execute("select from pipeline.shuffle_progress for update")
        staged, pending = shuffler._read_state()
        staged_log.connection.execute("update pipeline.shuffle_progress set commit_lsn = commit_lsn + 1")
    assert staged is not None
    with pytest.raises(FencedError):
        shuffler._step(staged, pending)
    assert len(seqs(staged_log)) == 2


def test_what_fails_leaves_no_transaction_behind(staged_log: Staged):
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        connection.execute("create temp table kept (n int primary key)")
        with pytest.raises(psycopg.errors.UniqueViolation), batched_transaction.transaction(connection) as statements:
            statements.add("insert into kept values (1)")
            statements.ask("insert into kept values (1)")
        with batched_transaction.transaction(connection) as statements:
            statements.add("insert into kept values (%(n)s)", {"n": 2})
            found = statements.add("select n from kept")
        assert found.rows == [(2,)]
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_statements_that_the_session_has_lost_are_made_again(staged_log: Staged, shuffler: Shuffler):
    shuffler._connection.execute("deallocate all")
    staged_log.commit(insert("orders", id="3"))
    assert shuffler.step() == 1
    staged_log.commit(insert("orders", id="4"))
    assert shuffler.step() == 1
    assert seqs(staged_log) == [1, 2, 3, 4]


def test_no_more_statements_are_kept_than_are_likely_to_come_again(staged_log: Staged):
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        prepared = batched_transaction.PreparedStatementCache(connection)
        for number in [*range(batched_transaction.PREPARED + 3), 0]:
            with batched_transaction.transaction(connection, prepared) as statements:
                found = statements.add_prepared("add", sql.SQL(f"select %(n)s::int + {number}"), {"n": 1})
            assert found.rows == [(1 + number,)]
        kept = connection.execute("select count(*) from pg_prepared_statements where name like 'add%'").fetchone()
        assert kept == (batched_transaction.PREPARED,)


def test_a_statement_that_waits_to_be_sent_is_not_let_go(staged_log: Staged):
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        prepared = batched_transaction.PreparedStatementCache(connection)
        for number in range(2 * batched_transaction.PREPARED):
            with batched_transaction.transaction(connection, prepared) as statements:
                always = statements.add_prepared("add", sql.SQL("select %(n)s::int"), {"n": number})
                statements.add_prepared("add", sql.SQL(f"select %(n)s::int + {number}"), {"n": 1})
            assert always.rows == [(number,)]
