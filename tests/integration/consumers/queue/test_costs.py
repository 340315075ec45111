"""What a receiver waits for, and what its requests look at: not more as the log, its tables and their history grow."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import psycopg
import pytest

from pipeline.config import patterns
from pipeline.consumers.queue import consumers, items, queue_apply
from pipeline.log.table import DEFAULT
from pipeline.postgres.queries import statement
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Client, Staged, Table, create, insert, staging_of

IS_DURABLE = "select current_setting('synchronous_commit')"
MANY_VERSIONS = """
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    select source_id, epoch, 5000 + n, 'public', 'many' || n, 5000 + n, 'public', 'many' || n, 'd', '[]', '{}', 0
    from (select source_id, epoch from pipeline.relations limit 1) r, generate_series(1, 3000) n
"""
PARTITION = "create table public.far_{0} partition of public.sequin_events for values from ({0}) to ({0} + 10)"


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t")) as made:
        yield made


@pytest.fixture
def short_timeouts(staged: Staged) -> Iterator[Client]:
    """In a transaction of a session whose commits wait for nothing."""
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("set synchronous_commit = off")
        connection.commit()
        yield Client(connection, "c")


def setting(client: Client) -> object:
    return client.connection.execute(IS_DURABLE).fetchall()[0][0]


def test_an_asynchronous_session_receives_fast_and_acknowledges_durably(staged: Staged, short_timeouts: Client):
    create(staged.connection)
    staged.moved(*(insert("t", id=number) for number in range(3)))
    first, second, third = short_timeouts.receive()
    short_timeouts.nack(first)
    short_timeouts.extend(second)
    assert setting(short_timeouts) == "off"
    short_timeouts.connection.commit()
    short_timeouts.ack(second)
    assert setting(short_timeouts) == "on"
    (written,) = short_timeouts.connection.execute("select pg_current_wal_insert_lsn()").fetchall()[0]
    short_timeouts.connection.commit()
    assert staged.connection.execute("select pg_current_wal_flush_lsn() >= %s", [written]).fetchone() == (True,)
    assert short_timeouts.ack(second) == 0
    assert setting(short_timeouts) == "off"
    short_timeouts.connection.execute("set local synchronous_commit = remote_write")
    short_timeouts.ack(third)
    assert setting(short_timeouts) == "remote_write"


@pytest.mark.parametrize("options", [{"group_by": ["g"]}, {"max_unacknowledged": 5}, {"collapse": False}], ids=str)
def test_what_is_one_at_a_time_stays_so_after_a_crash(staged: Staged, short_timeouts: Client, options: dict[str, Any]):
    create(staged.connection, **options)
    staged.moved(insert("t", id=1, g=1))
    (item,) = short_timeouts.receive()
    assert setting(short_timeouts) == "on"
    short_timeouts.connection.commit()
    short_timeouts.ack(item)
    assert setting(short_timeouts) == "on"


def test_what_clients_call_is_planned_once_a_session(staged: Staged):
    planned = staged.connection.execute(
        "select proname from pg_proc where pronamespace = 'pipeline'::regnamespace"
        " and 'plan_cache_mode=force_generic_plan' = any (proconfig) order by 1"
    ).fetchall()
    assert [name for (name,) in planned] == ["ack", "extend", "give_back", "nack", "next_visible", "receive"]


def test_ack_ids_of_one_call_are_next_to_each_other_and_all_are_different(staged: Staged):
    client = create(staged.connection)
    staged.moved(*(insert("t", id=number) for number in range(20)))
    calls = [[item.ack_id.bytes for item in client.receive(10)] for _ in range(2)]
    assert len({each for ids in calls for each in ids}) == 20
    beginnings = [{each[:12] for each in ids} for ids in calls]
    assert [len(each) for each in beginnings] == [1, 1]
    assert beginnings[0] != beginnings[1]


def test_receive_begins_with_the_partitions_of_its_items_alone(staged: Staged):
    text = files("pipeline.consumers.queue").joinpath("functions", "receive.sql").read_text()
    query = text[text.index("select h.ack_id") : text.rindex(";\nend")]
    for name, value in {
        "unnest(handed)": "unnest($1::public.consumer_records[])",
        "first_seq": "$2::bigint",
        "last_seq": "$3::bigint",
    }.items():
        assert name in query
        query = query.replace(name, value)
    with psycopg.connect(staged.dsn) as connection:
        for at in range(10**9, 10**9 + 50, 10):
            connection.execute(PARTITION.format(at).encode())
        connection.execute(f"set local plan_cache_mode = force_generic_plan; prepare given as {query}".encode())
        plan = [line for (line,) in connection.execute("explain execute given(null, 1, 9)")]
        connection.rollback()
    assert any("Subplans Removed" in line for line in plan)
    assert not any("far_" in line for line in plan)


def test_versions_of_tables_are_found_by_index(staged: Staged):
    create(staged.connection)
    staged.moved(insert("t", id=1))
    folding = {"consumer": 1, "after": 0, "upto": 1, "patterns": patterns.likes([]), "actions": [], "group_by": ["g"]}
    queries: dict[str, dict[str, object]] = {
        statement("wires.sequin", "receive_items"): {"name": "c", "most": 1},
        statement("wires.sequin", "find_tables"): {"name": "c", "seqs": [1]},
        statement("wires.sequin", "find_kept_events"): {"ack_ids": []},
        items._compose_apply(DEFAULT.identifier.as_string(staged.connection), True).decode(): folding,
        queue_apply.compose_plain(DEFAULT.identifier.as_string(staged.connection)).decode(): {
            "filters": queue_apply.list_filters(consumers.list_consumers(staged.connection)),
            "after": 0,
            "upto": 1,
        },
    }
    with psycopg.connect(staged.dsn) as connection:
        connection.execute(MANY_VERSIONS)
        connection.execute("analyze pipeline.relations")
        for query, values in queries.items():
            plan = "\n".join(line for (line,) in connection.execute(f"explain {query}".encode(), values))
            assert " on relations r" in plan, plan
            assert "Seq Scan on relations" not in plan, plan
        connection.rollback()
