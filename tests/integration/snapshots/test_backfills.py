"""Backfills as they are begun and changed: what is refused at once, and what status says of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from pipeline.capture.source import sources
from pipeline.errors import BackfillError, ConditionRefusedError, TableRefusedError, UnknownBackfillError
from pipeline.postgres import connections, session_settings
from pipeline.snapshots import backfills as stored_backfills
from pipeline.snapshots import snapshot_status
from pipeline.snapshots import start as start_backfill
from pipeline.snapshots import status as backfills
from pipeline.snapshots.conditions.condition import ColumnComparison
from pipeline.snapshots.start import by_terms, by_text
from tests.fixtures.captured import Captured, captured
from tests.fixtures.postgres import unique


@pytest.fixture
def known(source_dsn: str, database_dsn: str) -> Iterator[Captured]:
    with captured(source_dsn, database_dsn) as found:
        yield found


def start(known: Captured, name: str, choose: start_backfill.ConditionParser | None = None) -> backfills.BackfillStatus:
    return start_backfill.start(known.config, known.source, known.log, name, choose)


def status(known: Captured) -> snapshot_status.SnapshotStatus:
    stored = sources.find(known.log, None)
    assert stored is not None
    return snapshot_status.read(known.log, stored)


def test_from_its_beginning_to_its_end(known: Captured) -> None:
    whole = start(known, "orders")
    assert (whole.table, whole.kind, whole.state, whole.condition) == ("public.orders", "asked", "waiting", None)
    view = "select state, backfill from pipeline.snapshots where \"table\" = 'public.orders'"
    assert known.log.execute(view).fetchone() == ("waiting", whole.id)
    with pytest.raises(BackfillError, match=f"backfill {whole.id} of public.orders is waiting; wait for its end, or"):
        start(known, "public.orders", by_text("id = 1"))

    assert backfills.pause(known.config, known.log, whole.id).state == "paused"
    with pytest.raises(BackfillError, match="is paused; it cannot be paused"):
        backfills.pause(known.config, known.log, whole.id)
    assert backfills.resume(known.config, known.log, whole.id).state == "waiting"
    with pytest.raises(BackfillError, match="is waiting; only one that is paused can be resumed"):
        backfills.resume(known.config, known.log, whole.id)
    assert backfills.cancel(known.config, known.log, whole.id).ended
    with pytest.raises(BackfillError, match="is cancelled; it cannot be cancelled"):
        backfills.cancel(known.config, known.log, whole.id)

    part = start(known, "Odd name", by_terms([ColumnComparison("id", ">", 5)]))
    assert (part.table, part.condition) == ("public.Odd name", "id > '5'")
    found = status(known)
    assert [each.id for each in found.backfills] == [part.id]
    assert found.tables == {"cancelled": 1, "not read": 2}
    assert (found.unread_count, len(found.unread)) == (3, 3)
    assert "PIPELINE_SNAPSHOT was never" in (found.unread[0].reason or "")
    assert [each.id for each in backfills.list_backfills(known.config, known.log)] == [part.id, whole.id]


def test_the_pace_is_that_of_the_ranges(known: Captured) -> None:
    number = start(known, "orders").id
    known.log.execute(
        "update pipeline.backfills set state = 'reading', started_at = now() - interval '10 s', ranges_all = 5,"
        " ranges_done = 1, rows_read = 4000, rows_added = 3000"
    )
    found = backfills.show(known.config, known.log, number)
    assert found.rows == 3000
    assert 300 < (found.rows_per_second or 0) <= 400
    assert 40 <= (found.seconds_left or 0) < 60
    stored = stored_backfills.find(known.log, number)
    assert stored is not None and stored.started_at is not None
    exact = backfills.shown(stored, stored.started_at + timedelta(seconds=10))
    assert (exact.rows_per_second, exact.seconds_left) == (400.0, 40.0)


REFUSED_TABLES = [
    ("ordres", r"the source has no table ordres; is it one of public.orders\?"),
    ("public.Orders", r"is it one of public.orders\?"),
    ("nothing.like.it", r"is it one of public.Odd name, public.orders, public.parted\?"),
    ("part", "public.part is a partition; name its root, public.parted"),
    ("shown", "public.shown is a view, which Postgres does not replicate; name a table"),
    ("quick", "public.quick is unlogged"),
    ("public.plain", "public.plain is not captured: no publication in use has it"),
    ("x\0", "the source has no table"),
]
REFUSED_CONDITIONS = [
    ("nothing = 1", "the table has no column nothing: use one of id, state"),
    ("id = 'abc'", 'the source does not take that condition: invalid input syntax for type integer: "abc"'),
    ("id like 'x'", "the source does not take that condition: operator does not exist"),
    ("pg_sleep(9) is null", r"pg_sleep\(\) is not allowed"),
    ("true) or (true", "--where: "),
]


def test_what_cannot_be_read_is_refused_at_once(known: Captured) -> None:
    for name, said in REFUSED_TABLES:
        with pytest.raises(TableRefusedError, match=said):
            start(known, name)
    for where, said in REFUSED_CONDITIONS:
        with pytest.raises(ConditionRefusedError, match=said):
            start(known, "orders", by_text(where))
    assert backfills.list_backfills(known.config, known.log) == []


def test_a_table_that_somebody_locks_is_begun_all_the_same(known: Captured, source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as other:
        other.execute("lock table orders in access exclusive mode")
        assert start(known, "orders", by_text("id = 1")).state == "waiting"


def test_a_user_who_may_not_read_it(known: Captured, source_dsn: str) -> None:
    role = unique("role")
    with psycopg.connect(source_dsn, autocommit=True) as admin:
        admin.execute(f"create role {role} login")
        try:
            with (
                connections.connect(f"{source_dsn} user={role}", "source", settings=session_settings.SERVER) as source,
                pytest.raises(
                    TableRefusedError,
                    match=f'user "{role}" may not read public.orders; run: grant select on public.orders to "{role}"',
                ),
            ):
                start_backfill.start(known.config, source, known.log, "orders")
            admin.execute(f"grant select on orders to {role}; alter table orders enable row level security")
            with (
                connections.connect(f"{source_dsn} user={role}", "source", settings=session_settings.SERVER) as source,
                pytest.raises(
                    TableRefusedError,
                    match=f'row security hides rows of public.orders from user "{role}"; run: alter role',
                ),
            ):
                start_backfill.start(known.config, source, known.log, "orders")
        finally:
            admin.execute(f"drop owned by {role}; drop role {role}")


def test_what_is_not_there(known: Captured) -> None:
    with pytest.raises(UnknownBackfillError, match="there is no backfill 7; `pipeline backfill list`"):
        backfills.show(known.config, known.log, 7)
    known.log.execute("delete from pipeline.snapshot_tables; delete from pipeline.sources")
    assert backfills.list_backfills(known.config, known.log) == []
    with pytest.raises(BackfillError, match="no source has been replicated from yet; start `pipeline serve` first"):
        start(known, "orders")
