"""Which tables are new: created after the slot was made, or after the epoch began, whether they are captured or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.capture.source import seen_tables
from pipeline.capture.source.seen_tables import SeenTables
from pipeline.config import settings
from pipeline.config.settings import Config
from tests.fixtures.shuffling import stored
from tests.fixtures.snapshotting import Snapshotting, snapshotting


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def new_tables(reading: Snapshotting, epoch: int = 0) -> list[str]:
    """Names of those that are stored as new; all that exist are stored."""
    found = reading.log.execute(
        "select table_oid, first_seen_at is not null from pipeline.seen_tables where epoch = %s", [epoch]
    )
    new: dict[int, bool] = dict(found.fetchall())
    names = reading.source.execute(
        "select oid::bigint, relname from pg_class where relkind in ('r', 'p') and oid >= 16384 order by relname"
    ).fetchall()
    assert new.keys() == {0, *(oid for oid, _ in names)}
    return [name for oid, name in names if new[oid]]


def test_what_exists_before_the_slot_is_old_whenever_it_joins(config: Config):
    """Also tables that cannot be captured yet, or that the settings do not name."""
    chosen = config.model_copy(update={"tables": ("public.t*",)})
    before = ("create table t (id int primary key)", "create unlogged table aside (id int primary key)")
    with snapshotting(chosen, *before) as reading:
        reading.source.execute("create table other (id int)")
        reading.source.execute("create table parted (id int) partition by range (id)")
        reading.look()
        assert new_tables(reading) == ["other", "parted"]
        reading.source.execute("alter table aside set logged")
        reading.restart()
        reading.source.execute("create table t2 (id int primary key)")
        reading.look()
        assert new_tables(reading) == ["other", "parted", "t2"]


def test_what_exists_at_the_first_look_after_the_upgrade_is_old(config: Config):
    with snapshotting(config, "create table t (id int primary key)") as reading:
        reading.log.execute("delete from pipeline.seen_tables")
        reading.restart()
        reading.look()
        assert new_tables(reading) == []


def test_what_exists_when_an_epoch_begins_is_old_in_it(config: Config):
    with snapshotting(config) as reading:
        reading.look()
        reading.source.execute("create table t (id int primary key)")
        reading.look()
        now = replace(stored(reading.log), epoch=1)
        seen_tables.begin(reading.source, reading.log, now.id, 1)
        reading.source.execute("create table u (id int primary key)")
        SeenTables(reading.source, reading.log, now.id, 1).record_new()
        assert new_tables(reading, 1) == ["u"]


def test_tables_that_were_dropped_long_ago_are_forgotten(config: Config):
    with snapshotting(config) as reading:
        reading.look()
        reading.source.execute("create table t (id int primary key)")
        reading.look()
        reading.source.execute("drop table t")
        reading.log.execute("update pipeline.seen_tables set first_seen_at = now() - interval '31 days'")
        reading.restart()
        reading.look()
        assert new_tables(reading) == []
