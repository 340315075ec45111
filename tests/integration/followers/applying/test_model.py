"""Random transactions arrive at a follower: at each batch's end it holds what the source held after that commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline.log.table import DEFAULT, EventsTable
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.changing_rows import AT_FOLLOWER, AT_SOURCE, COLUMNS, Changes, content
from tests.fixtures.following import Follower, follower, in_one_way
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases

TRANSACTIONS = 100
UNKNOWN = EventsTable("public", "forgetful_events")
FORGET = """
    create table forgetful_events (like sequin_events including all);
    insert into forgetful_events select * from sequin_events;
    update forgetful_events e set record = e.record - 'big', unchanged_columns = '{big}'
    from (
        select seq, record ->> 'big' = lag(record ->> 'big') over w and lag(action) over w <> 'delete' as same
        from sequin_events where source_table_name = 'wide' window w as (partition by record_pk order by seq)
    ) before
    where e.seq = before.seq and e.action = 'update' and (before.same or e.changes ? 'id')
"""
"""A log that does not know what an update has left alone."""


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run(*AT_SOURCE)
        stage.start()
        yield stage


@pytest.fixture(scope="module")
def changes(stage: Stage) -> Changes:
    publish_new_tables(stage.config)
    made = Changes(stage.source, seed=11)
    made.run(TRANSACTIONS)
    stage.arrive()
    stage.log.execute(FORGET.encode())
    return made


def follow(changes: Changes, there: Follower, **given: Any) -> int:
    """How many batches it took."""
    batches, last = 0, -1
    applier = there.applier(list(COLUMNS), **given)
    while (applied := applier.apply()) is not None:
        batches += 1
        rows = there.rows("select n from clock")
        if rows:
            [(number,)] = rows
            assert content(there.look) == changes.contents[number], f"after transaction {number}, seq {applied.seq}"
            assert number >= last
            last = number
    assert content(there.look) == changes.contents[TRANSACTIONS]
    return batches


@pytest.mark.parametrize(
    ("way", "events", "events_table"),
    [
        pytest.param("sets", 1, DEFAULT, id="one by one"),
        pytest.param("sets", 7, UNKNOWN, id="few, unknown"),
        pytest.param("sets", 50, DEFAULT, id="many", marks=pytest.mark.long),
        pytest.param("sets", 500, UNKNOWN, id="most, unknown", marks=pytest.mark.long),
        pytest.param("relayed", 7, DEFAULT, id="relayed, few", marks=pytest.mark.long),
        pytest.param("relayed", 50, UNKNOWN, id="relayed, many, unknown"),
        pytest.param("relayed", 500, DEFAULT, id="relayed, most"),
    ],
)
def test_each_batch_ends_at_a_commit(
    stage: Stage, changes: Changes, cluster: Cluster, way: str, events: int, events_table: EventsTable
):
    with follower(stage, cluster, *AT_FOLLOWER, way=way) as there:
        batches = follow(changes, there, events=events, events_table=events_table)
        assert batches >= (TRANSACTIONS if events == 1 else 2)


@pytest.mark.long
@pytest.mark.usefixtures("each_way")
def test_an_older_server_follows(stage: Stage, changes: Changes, clusters: Callable[[int], Cluster]):
    with follower(stage, clusters(15), *AT_FOLLOWER) as there:
        follow(changes, there, events=50)


@in_one_way
@pytest.mark.usefixtures("each_way")
def test_triggers_that_fire_for_replicas_see_each_event_in_order(stage: Stage, changes: Changes, cluster: Cluster):
    triggers = [
        "create table seen (n bigserial, what text)",
        "create function see() returns trigger language plpgsql as $$ begin"
        " insert into public.seen (what) values (tg_op || ' ' || coalesce(new.id, old.id)); return null; end $$",
        "create trigger see after insert or update or delete on pairs for each row execute function see()",
        "alter table pairs enable always trigger see",
    ]
    with follower(stage, cluster, *AT_FOLLOWER, *triggers) as there:
        follow(changes, there, events=50)
        seen = there.rows("select what from seen order by n")
    log = stage.look(
        "select upper(action) || ' ' || record_pk as what from sequin_events"
        " where source_table_name = 'pairs' and action <> 'truncate' order by seq"
    )
    assert [what for (what,) in seen] == [row["what"] for row in log]
