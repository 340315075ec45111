"""Ways to lose changes, each settled by comparing tables with the log in the epoch that begins after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.operate.repair import adopt
from tests.fixtures.replicating import run
from tests.fixtures.slots import wait_until_left
from tests.fixtures.snapshotting import snapshotting

TABLE = (
    "create table t (id int primary key, n int, big text)",
    "alter table t alter big set storage external",
    "insert into t select g, 0, repeat('x', 3000) from generate_series(1, 6) g",
)
CHANGES = ("insert into t values (7, 1)", "update t set n = 1 where id = 1", "delete from t where id = 2")


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def without_the_slot(config: Config, *changes: str) -> None:
    run(config, *changes, f"select pg_drop_replication_slot('{config.slot}')")


def beside_the_slot(config: Config, *changes: str) -> None:
    run(config, *changes, f"select pg_replication_slot_advance('{config.slot}', pg_current_wal_lsn())")


def unpublished(config: Config, *changes: str) -> None:
    run(config, "alter publication pipeline drop table t", *changes, "alter publication pipeline add table t")


@pytest.mark.parametrize("lose", [without_the_slot, pytest.param(beside_the_slot, marks=pytest.mark.long), unpublished])
def test_what_was_lost_is_found(config: Config, lose: Callable[..., None]):
    with snapshotting(config, *TABLE) as reading:
        reading.finish("t")
    wait_until_left(config.source, config.slot)
    lose(config, *CHANGES)
    adopted = adopt.adopt(config, reread=True)
    assert adopted is not None and adopted.epoch == 1
    with snapshotting(config, "update t set n = 2 where id = 3") as reading:
        reading.finish("t")
        run(config, "update t set n = 4 where id in (3, 4)")
        reading.wait_for_stream()
        assert reading.folded("t") == reading.table("t")
        found = reading.events("t", "action, record_pk, metadata is not null, source_epoch")
        assert sorted(event[:2] for event in found if event[2]) == [
            ("delete", "2"),
            ("insert", "7"),
            ("update", "1"),
            ("update", "3"),
        ]
        assert len([event for event in found if event[3] == 0]) == 6
