"""Retention drops whole old partitions, and nothing that a consumer or an export still needs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.config.settings import load
from pipeline.errors import ConfigError, RetentionBusyError
from pipeline.log.partitions import attached
from pipeline.log.retention import drop_partition, policy
from pipeline.log.table import EventsTable
from pipeline.operate import retention
from tests.fixtures.aging_log import KEEP, PARTITION, AgingLog, aging_log
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.server import run_at_terminal, run_command

OLD, YOUNG = 1.1 * KEEP, KEEP / 2
TOO_OLD = 2 * KEEP
"""Beyond the age at which what cannot go as a whole goes row by row."""
LAKE = "/nowhere/lake"


@pytest.fixture
def aged_log(database_dsn: str) -> Iterator[AgingLog]:
    with aging_log(database_dsn) as made:
        yield made


def add_cursor(aged_log: AgingLog, position: int) -> None:
    aged_log.connection.execute(
        "insert into pipeline.consumers (name, kind, position) values ('slow', 'cursor', %s)", [position]
    )


def add_records_consumer(aged_log: AgingLog, folded: int) -> None:
    aged_log.connection.execute(
        "with c as (insert into pipeline.consumers (name, kind, position) values ('slow', 'records', 0) returning id)"
        " insert into pipeline.consumer_progress (consumer_id, folded_seq) select id, %s from c",
        [folded],
    )


def add_item(aged_log: AgingLog, seq: int, table: str = "public.consumer_records") -> None:
    aged_log.connection.execute(
        f"insert into {table} (consumer_id, source_table_oid, record_pk, seq, queued_seq, action)"
        " select id, 16384, %s, %s, %s, 'insert' from pipeline.consumers",
        [str(seq), seq, seq],
    )


def add_export(aged_log: AgingLog, upto: int, state: str) -> None:
    aged_log.connection.execute(
        "insert into pipeline.lakes (id, directory, events_table) values (%s, %s, %s) on conflict do nothing",
        [uuid.UUID(int=1), LAKE, str(aged_log.table)],
    )
    aged_log.connection.execute(
        "insert into pipeline.exports (lake_id, after_seq, upto_seq, state, holder, committed_at)"
        " select %s, coalesce(max(upto_seq), 0), %s, %s, 'a test', clock_timestamp() from pipeline.exports",
        [uuid.UUID(int=1), upto, state],
    )


def test_whole_partitions_go_whose_newest_event_is_old(aged_log: AgingLog):
    aged_log.add(2 * PARTITION + 50, OLD)
    aged_log.add(10, YOUNG)
    found = aged_log.drop()
    assert (found.partitions, found.below) == (2, 201)
    assert aged_log.kept() == (201, 60)
    assert aged_log.drop().partitions == 0
    assert aged_log.retention_status().held_by == []


def test_the_newest_event_stays_however_old_and_its_partition_with_it(aged_log: AgingLog):
    aged_log.add(2 * PARTITION, OLD)
    assert aged_log.drop().partitions == 1
    assert aged_log.kept()[0] + aged_log.kept()[1] - 1 == 2 * PARTITION


def test_what_was_dropped_is_recorded_and_the_tables_are_gone(aged_log: AgingLog):
    aged_log.add(3 * PARTITION, OLD)
    gone = [each.oid for each in attached(aged_log.connection, aged_log.table)][:2]
    aged_log.drop()
    known = policy.dropped(aged_log.connection, aged_log.table)
    assert known.below >= 2 * PARTITION + 1
    assert known.dropping is None
    assert aged_log.connection.execute("select count(*) from pg_class where oid = any(%s)", [gone]).fetchone() == (0,)


def test_a_cursor_that_lags_holds_back_and_is_named_with_its_remedy(aged_log: AgingLog):
    aged_log.add(3 * PARTITION + 10, OLD)
    add_cursor(aged_log, 150)
    assert aged_log.drop().below == 101
    assert [str(each) for each in aged_log.retention_status().held_by] == [
        'consumer "slow" is at 150; let it acknowledge what it has read, or `pipeline consumers reset slow`'
        " or `pipeline consumers delete slow`"
    ]
    aged_log.connection.execute("update pipeline.consumers set position = 300")
    assert aged_log.drop().below >= 301
    assert aged_log.retention_status().held_by == []


def test_a_paused_consumer_holds_back_too(aged_log: AgingLog):
    aged_log.add(2 * PARTITION, OLD)
    add_cursor(aged_log, 0)
    aged_log.connection.execute("update pipeline.consumers set state = 'paused'")
    assert aged_log.drop().partitions == 0
    assert "resume it, or" in aged_log.retention_status().held_by[0].remedy


@pytest.mark.parametrize("table", ["public.consumer_records", "pipeline.consumer_touches"])
def test_an_item_that_is_not_acknowledged_keeps_its_event(aged_log: AgingLog, table: str):
    aged_log.add(4 * PARTITION, OLD)
    add_records_consumer(aged_log, aged_log.head)
    add_item(aged_log, 201, table)
    assert aged_log.drop().below == 201
    aged_log.connection.execute(f"update {table} set seq = 301")
    assert aged_log.drop().below == 301


def test_a_records_consumer_keeps_what_is_not_folded_yet(aged_log: AgingLog):
    aged_log.add(3 * PARTITION, OLD)
    add_records_consumer(aged_log, 120)
    assert aged_log.drop().below == 101


def test_a_dead_letter_holds_nothing_back(aged_log: AgingLog):
    aged_log.add(3 * PARTITION, OLD)
    add_records_consumer(aged_log, aged_log.head)
    add_item(aged_log, 1)
    aged_log.connection.execute("update public.consumer_records set state = 'dead', event = '{}'")
    assert aged_log.drop().partitions == 2


@pytest.mark.parametrize("state", ["writing", "publishing", "failed"])
def test_events_that_are_not_exported_stay(aged_log: AgingLog, state: str):
    aged_log.add(3 * PARTITION, OLD)
    add_export(aged_log, 100, "committed")
    add_export(aged_log, 300, state)
    assert aged_log.drop().below == 101
    assert aged_log.retention_status().held_by[0].name == LAKE
    aged_log.connection.execute("update pipeline.exports set state = 'committed'")
    assert aged_log.drop().partitions == 1


def test_a_released_lake_holds_nothing_back_until_it_is_exported_to_again(aged_log: AgingLog):
    aged_log.add(3 * PARTITION, OLD)
    add_export(aged_log, 100, "committed")
    retention.release_lake(aged_log.connection, LAKE)
    assert aged_log.drop().partitions == 2
    aged_log.connection.execute("update pipeline.exports set committed_at = clock_timestamp()")
    aged_log.add(2 * PARTITION, OLD)
    assert aged_log.drop().partitions == 0
    with pytest.raises(ConfigError, match="no lake in /elsewhere prevents the drop of events"):
        retention.release_lake(aged_log.connection, "/elsewhere")


def test_what_a_lake_lacks_is_let_go_by_who_means_it(aged_log: AgingLog, database_dsn: str, tmp_path: Path):
    aged_log.add(3 * PARTITION, OLD)
    add_export(aged_log, 100, "committed")
    release = ("retention", "--release-lake", LAKE)
    given: dict[str, Any] = {"folder": tmp_path, "database_dsn": database_dsn}
    refused = run_command(*release, **given)
    assert refused.returncode == 2 and "nothing was changed; add --yes" in refused.stderr
    assert re.fullmatch(
        rf"{LAKE} lacks 200 seqs, the oldest committed .* UTC: it will never receive .*\n", refused.stdout
    )
    assert aged_log.drop().below == 101
    assert run_at_terminal(LAKE, *release, **given).returncode == 0
    assert aged_log.drop().below == 201


def test_scheduled_exports_hold_back_before_the_first_one(aged_log: AgingLog, database_dsn: str):
    aged_log.add(2 * PARTITION + 10, OLD)
    config = load(database_dsn=database_dsn, retention="1m", export_schedule="0 0 1 1 *", export_dir=LAKE)
    assert aged_log.drop(config).partitions == 0
    assert aged_log.retention_status(config).held_by[0].position == 0
    assert aged_log.drop().partitions == 2
    aged_log.add(PARTITION, OLD)
    assert aged_log.retention_status(config).held_by[0].position == 200, "a new lake begins with the existing events"


def test_so_they_do_for_what_routes_send_to_other_tables(aged_log: AgingLog, database_dsn: str):
    aged_log.add(10)
    route(aged_log.connection)
    aged_log.connection.execute(
        f"update public.\"{AUDIT.name}\" set inserted_at = now() - interval '{2 * KEEP} seconds'"
    )
    config = load(database_dsn=database_dsn, retention="1m", export_schedule="0 0 1 1 *", export_dir=LAKE)
    holders = retention._holders(config, aged_log.connection, AUDIT)
    assert [(each.name, each.position) for each in holders] == [(f"{LAKE}/public.audit%2Fevents", 0)]
    assert aged_log.drop(config).rows == 0
    aged_log.connection.execute(
        "insert into pipeline.lakes (id, directory, events_table) values (gen_random_uuid(), %s, %s)",
        [holders[0].name, str(AUDIT)],
    )
    aged_log.connection.execute(
        "insert into pipeline.exports (lake_id, after_seq, upto_seq, state, holder, committed_at)"
        " select id, 0, 20, 'committed', 'test', now() from pipeline.lakes"
    )
    assert aged_log.drop(config).rows == 20
    [kept] = aged_log.connection.execute(f'select min(seq), count(*) from public."{AUDIT.name}"').fetchall()
    assert kept == (21, 10)


def test_who_comes_while_a_drop_begins_is_not_robbed(aged_log: AgingLog, monkeypatch: pytest.MonkeyPatch):
    aged_log.add(3 * PARTITION, OLD)
    planned = policy.plan

    def plan_and_reset(*arguments: object) -> policy.RetentionPlan:
        found = planned(*arguments)  # type: ignore[arg-type]
        add_cursor(aged_log, 0)
        return found

    monkeypatch.setattr(policy, "plan", plan_and_reset)
    assert aged_log.drop().partitions == 0
    assert policy.dropped(aged_log.connection, aged_log.table).below == 1
    assert aged_log.kept()[1] == 3 * PARTITION


def test_one_session_at_a_time(aged_log: AgingLog, database_dsn: str):
    with psycopg.connect(database_dsn, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s, hashtext(%s))", [retention._LOCK, str(aged_log.table)])
        with pytest.raises(RetentionBusyError, match="already running"):
            aged_log.drop()


def test_without_the_setting_nothing_goes(aged_log: AgingLog, database_dsn: str):
    aged_log.add(3 * PARTITION, OLD)
    kept = load(database_dsn=database_dsn, export_schedule="off")
    assert retention.read(kept, aged_log.connection) is None
    with pytest.raises(ConfigError, match="PIPELINE_RETENTION is none"):
        aged_log.drop(kept)


def test_a_large_partition_with_old_and_new_events_is_trimmed_row_by_row(aged_log: AgingLog):
    aged_log.add(30, TOO_OLD)
    aged_log.add(20, YOUNG)
    assert aged_log.retention_status().trim_from == 1
    found = aged_log.drop()
    assert (found.partitions, found.rows, found.below) == (0, 30, 31)
    assert aged_log.kept() == (31, 20)


def test_trimming_respects_positions_and_names_who_holds(aged_log: AgingLog):
    aged_log.add(30, TOO_OLD)
    aged_log.add(20, YOUNG)
    add_cursor(aged_log, 12)
    assert aged_log.drop().rows == 12
    assert aged_log.retention_status().held_by[0].position == 12
    assert aged_log.drop().rows == 0


def test_an_old_table_without_partitions_is_trimmed(aged_log: AgingLog, database_dsn: str):
    aged_log.connection.execute("create table public.old_events (like public.sequin_events including all)")
    aged_log.connection.execute("create sequence public.old_events_seq_seq owned by public.old_events.seq")
    with aging_log(database_dsn, EventsTable("public", "old_events")) as old:
        old.partitions.reserve = lambda *_: None  # type: ignore[method-assign]
        old.add(5_000, TOO_OLD)
        old.add(10, YOUNG)
        assert old.drop().rows == 5_000
        assert old.kept() == (5_001, 10)
        assert old.retention_status().bytes > 0


def test_a_consumer_that_begins_at_the_beginning_begins_with_what_is_left(aged_log: AgingLog):
    aged_log.add(PARTITION + 30, TOO_OLD)
    aged_log.add(20, YOUNG)
    assert aged_log.drop().below == PARTITION + 31
    made = aged_log.connection.execute(
        "select position from pipeline.create_consumer('c', start => 'beginning')"
    ).fetchone()
    assert made == (PARTITION + 30,)
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        aged_log.connection.execute("select pipeline.create_consumer('d', start => '5')")


def test_unused_seqs_before_the_first_event_are_not_reported_as_dropped(aged_log: AgingLog):
    aged_log.connection.execute("select setval(%s, 7)", [aged_log.table.sequence.as_string(aged_log.connection)])
    aged_log.partitions.forget()
    aged_log.head = 7
    aged_log.add(1)
    made = aged_log.connection.execute("select position from pipeline.create_consumer('c', start => '0')").fetchone()
    assert made == (0,)


def test_an_event_counts_from_its_arrival(aged_log: AgingLog):
    aged_log.add(3 * PARTITION, YOUNG)
    aged_log.connection.execute("update public.sequin_events set committed_at = now() - interval '1 year'")
    assert aged_log.drop() == retention.RetentionOutcome()


@pytest.mark.parametrize("step", ["recorded", "pending", "detached"])
def test_who_comes_after_a_crash_goes_on_with_the_drop(aged_log: AgingLog, step: str):
    aged_log.add(2 * PARTITION + 10, OLD)
    first = attached(aged_log.connection, aged_log.table)[0]
    policy.record(aged_log.connection, aged_log.table, first.upper, first)
    if step == "pending":
        detach_half(aged_log, first.identifier.as_string(aged_log.connection))
    elif step == "detached":
        aged_log.connection.execute(drop_partition._STEPS["attached"].format(table=aged_log.table, partition=first))
    assert aged_log.drop().partitions == 2
    assert aged_log.connection.execute("select to_regclass(%s)", [str(first)]).fetchone() == (None,)
    assert aged_log.kept() == (201, 10)


def detach_half(aged_log: AgingLog, partition: str) -> None:
    """A detachment that gives up between its halves, as if its session had ended there."""
    with psycopg.connect(aged_log.config.database) as reader:
        reader.execute(f"select from {aged_log.table}")
        aged_log.connection.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            aged_log.connection.execute(f"alter table {aged_log.table} detach partition {partition} concurrently")
        aged_log.connection.execute("reset lock_timeout")
