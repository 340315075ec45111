"""An epoch that begins after a gap: which tables are read again, how, and that none is forgotten or read twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource, SourceEpoch
from pipeline.cli.render import losses
from pipeline.errors import TableRefusedError
from pipeline.operate.repair.gap import HistoryGap
from pipeline.snapshots import backfills, comparing, register, start
from tests.fixtures.captured import Captured, captured
from tests.fixtures.shuffling import stored


@pytest.fixture
def known(source_dsn: str, database_dsn: str) -> Iterator[Captured]:
    with captured(source_dsn, database_dsn) as found:
        found.source.execute("create table bare (id int); alter publication pipeline add table bare")
        update(found, stored(found.log))
        yield found


def update(known: Captured, source: ReplicationSource) -> None:
    register.TableRegister(known.config, known.source, known.log, source, 0).update()


def begin(known: Captured, cluster: str = "1") -> ReplicationSource:
    """A new epoch that must be reread, as `adopt` records it."""
    before = stored(known.log)
    now = replace(before, epoch=1, system_identifier=cluster)
    sources.begin_epoch(known.log, SourceEpoch(before.id, 0, "1", 1, 0, None, 0, ""))
    sources.begin_epoch(known.log, SourceEpoch(before.id, 1, cluster, 1, 0x20, 0x10, 0, "the slot was lost"))
    sources.change(known.log, now)
    sources.request_reread(known.log, now.id, 1)
    return now


def begun(known: Captured) -> list[tuple[str, str, str, int | None]]:
    found = backfills.list_newest(known.log, stored(known.log).id)
    return sorted((each.table_name, each.kind, each.state, each.gap_after) for each in found)


ALL = [
    ("Odd name", "differences", "waiting", 0x10),
    ("bare", "asked", "waiting", 0x10),
    ("orders", "differences", "waiting", 0x10),
    ("parted", "differences", "waiting", 0x10),
]


def test_each_table_is_read_again_once(known: Captured) -> None:
    start.start(known.config, known.source, known.log, "orders")
    now = begin(known)
    update(known, now)
    update(known, now)
    assert begun(known) == sorted([*ALL, ("orders", "asked", "failed", None)])
    assert sources.requested_reread(known.log, now.id) is None


def test_an_epoch_that_is_not_reread_reads_nothing_and_says_so(known: Captured) -> None:
    now = begin(known)
    sources.request_reread(known.log, now.id, None)
    update(replace(known, config=known.config.model_copy(update={"snapshot": "initial"})), now)
    assert begun(known) == []
    found = known.log.execute("select distinct state, reason from pipeline.snapshots").fetchall()
    assert found == [
        ("not read", "epoch 1 began without its rows being read; `pipeline backfill start` reads them"),
    ]


def test_one_of_which_another_backfill_is_under_way_is_read_again_after_it(known: Captured) -> None:
    now = begin(known)
    asked = start.start(known.config, known.source, known.log, "orders")
    update(known, now)
    update(known, now)
    assert ("orders", "differences", "waiting", 0x10) not in begun(known)
    backfills.end(known.log, asked.id, "cancelled")
    update(known, now)
    update(known, now)
    assert begun(known) == sorted([*ALL, ("orders", "asked", "cancelled", None)])


def test_in_another_cluster_an_oid_may_be_any_other_tables(known: Captured) -> None:
    known.log.execute("update pipeline.snapshot_tables set table_name = 'customers' where table_name = 'orders'")
    known.log.execute("delete from pipeline.snapshot_tables where table_name = 'parted'")
    sources.read_no_tables(known.log, stored(known.log).id)
    update(known, begin(known, cluster="2"))
    kinds = {name: kind for name, kind, _, _ in begun(known)}
    assert kinds == {"Odd name": "differences", "bare": "asked", "orders": "asked", "parted": "asked"}


def test_a_table_without_a_key_cannot_be_compared(known: Captured) -> None:
    with pytest.raises(
        TableRefusedError, match=r"public.bare has no key .*; `pipeline backfill start public.bare` reads it"
    ):
        start.start(known.config, known.source, known.log, "bare", differences=True)


def test_tables_of_which_the_log_never_had_all_rows_are_named(known: Captured) -> None:
    assert comparing.partly_known(known.log, stored(known.log)) == ["public.Odd name", "public.orders", "public.parted"]
    known.log.execute("update pipeline.snapshot_tables set told_seqs = '{}' where table_name = 'orders'")
    assert comparing.partly_known(known.log, stored(known.log)) == ["public.Odd name", "public.parted"]
    gap = HistoryGap("shop", [], 0, 0, None, partly_known=["public.parted"])
    assert [line for line in losses.gap(gap, reread=True) if line.endswith("never had: public.parted")]
