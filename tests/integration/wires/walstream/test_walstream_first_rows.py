"""Which rows that were read are inserts for walstream's clients: first rows of tables that are newer than these."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.rpc import Rpc
from tests.fixtures.small_log import SOURCE, small_log
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client
from tests.fixtures.walstream_log import head, stored, write

OID = 16384
SEEN = "insert into pipeline.seen_tables (source_id, epoch, table_oid, first_seen_at) values (%s, 0, %s, %s)"


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made:
        yield made


@pytest.fixture(scope="module")
def module_log(dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(dsn, 20) as connection, Rpc(dsn, wires="walstream") as rpc:
        connection.execute("create table address as select %s::text as at", [rpc.address])
        yield connection


@pytest.fixture
def log(module_log: psycopg.Connection) -> psycopg.Connection:
    """With the position at the head, and nothing known of the table."""
    eventually(lambda: module_log.execute("select from pipeline.consumers where reader is null").rowcount == 1)
    module_log.execute("select pipeline.drop_consumer('walstream')")
    module_log.execute("select pipeline.create_consumer('walstream', 'cursor')")
    module_log.execute("truncate pipeline.seen_tables, pipeline.backfills cascade")
    return module_log


@pytest.fixture
def address(log: psycopg.Connection) -> str:
    row = log.execute("select at from address").fetchone()
    assert row
    return str(row[0])


def see(log: psycopg.Connection, when: str | None = "infinity") -> None:
    """The table was seen first then; None: before the slot was made."""
    log.execute(SEEN, [SOURCE, OID, when])


def backfill(log: psycopg.Connection, kind: str = "initial", state: str = "reading", last: int | None = None) -> None:
    log.execute(
        "insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind, state, last_seq)"
        " values (%s, 0, %s, 'public', 'orders', %s, %s, %s)",
        [SOURCE, OID, kind, state, last],
    )


def sent(log: psycopg.Connection, address: str) -> list[int]:
    """What a client gets of three rows that were read; an insert follows."""
    with Client(address).connected() as client:
        write(log, *(("read", {"id": number}) for number in range(3)))
        write(log, ("insert", {"id": 9}))
        found = []
        while (event := client.next()).values["id"] != 9:
            assert event.kind == "insert"
            found.append(event.values["id"])
            client.ack(event.lsn)
        client.ack(event.lsn)
        stored(log, head(log))
    return found


def test_rows_of_the_first_backfill_of_a_new_table_are_inserts(log: psycopg.Connection, address: str) -> None:
    see(log)
    backfill(log)
    assert sent(log, address) == [0, 1, 2]


@pytest.mark.parametrize("seen", [None, "-infinity"], ids=["before the slot", "before the consumer"])
def test_rows_of_a_table_that_existed_before_are_not_sent(
    log: psycopg.Connection, address: str, seen: str | None
) -> None:
    see(log, seen)
    backfill(log)
    assert sent(log, address) == []


def test_rows_of_a_table_that_no_look_has_seen_are_not_sent(log: psycopg.Connection, address: str) -> None:
    backfill(log)
    assert sent(log, address) == []


def test_rows_that_a_later_backfill_reads_are_not_sent(log: psycopg.Connection, address: str) -> None:
    """A client that is behind gets those of the first one, and no others."""
    see(log)
    backfill(log, state="complete", last=head(log) + 2)
    backfill(log)
    assert sent(log, address) == [0, 1]


def test_rows_that_were_asked_for_are_not_sent(log: psycopg.Connection, address: str) -> None:
    see(log)
    backfill(log, kind="asked")
    assert sent(log, address) == []


@pytest.mark.parametrize(("actions", "expected"), [(["insert"], [0, 1, 2]), (["delete", "read"], [0, 1, 2])])
def test_the_consumers_actions_hold_for_first_rows(
    log: psycopg.Connection, address: str, actions: list[str], expected: list[int]
) -> None:
    log.execute("update pipeline.consumers set actions = %s where name = 'walstream'", [actions])
    if "read" not in actions:
        see(log)
        backfill(log)
    with Client(address).connected() as client:
        write(log, *(("read", {"id": number}) for number in range(3)))
        assert [event.values["id"] for event in client.take(3)] == expected


def test_without_inserts_there_are_no_first_rows(log: psycopg.Connection, address: str) -> None:
    log.execute("update pipeline.consumers set actions = '{delete}' where name = 'walstream'")
    see(log)
    backfill(log)
    with Client(address).connected() as client:
        write(log, ("read", {"id": 1}))
        write(log, ("delete", {"id": 2}))
        assert client.next().values == {"id": 2}


def see_leaf(log: psycopg.Connection, oid: int, when: str | None = "infinity") -> None:
    log.execute(SEEN, [SOURCE, oid, when])


def read_partitions(log: psycopg.Connection, leaves: list[int], *, last: int | None = None) -> None:
    """A backfill of these alone, whose events come from here on; up to `last`, if it has ended."""
    log.execute(
        "insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind, state, relations,"
        " after_lsn, since_seqs, first_seq, last_seq) values (%s, 0, %s, 'public', 'orders', 'initial', %s, %s, 1,"
        " jsonb_build_object('public.sequin_events', %s::bigint), %s, %s)",
        [SOURCE, OID, "reading" if last is None else "complete", leaves, head(log), last and head(log) + 1, last],
    )


@pytest.mark.parametrize("seen", [None, "-infinity", "infinity"], ids=["old", "before the consumer", "new"])
def test_rows_of_a_partition_that_is_new_are_inserts(log: psycopg.Connection, address: str, seen: str | None) -> None:
    """Whatever its table is, which was captured before."""
    see(log, None)
    see_leaf(log, 1, seen)
    read_partitions(log, [1])
    assert sent(log, address) == ([0, 1, 2] if seen == "infinity" else [])


def test_rows_of_a_new_partition_end_with_its_backfill(log: psycopg.Connection, address: str) -> None:
    see(log, None)
    see_leaf(log, 1)
    read_partitions(log, [1], last=head(log) + 2)
    backfill(log, kind="asked")
    assert sent(log, address) == [0, 1]


def test_an_old_partition_of_a_new_table_is_not_its_first_rows(log: psycopg.Connection, address: str) -> None:
    see(log)
    see_leaf(log, 1, None)
    read_partitions(log, [1])
    assert sent(log, address) == []


def test_a_partition_that_joins_later_in_a_session_is_asked_for(log: psycopg.Connection, address: str) -> None:
    see(log, None)
    see_leaf(log, 1)
    with Client(address).connected() as client:
        write(log, ("read", {"id": 1}))
        write(log, ("insert", {"id": 2}))
        assert client.next().values["id"] == 2
        read_partitions(log, [1])
        write(log, ("read", {"id": 3}))
        assert client.next().values["id"] == 3
