"""Before which epoch a follower stops: what it lacks of the changes before, and what makes up for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.errors import DatabaseUnavailableError
from pipeline.followers import registry
from pipeline.followers.applying.passes import EpochGap
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.running import epoch_gaps
from tests.fixtures.followers import Adding

EPOCH = """
insert into pipeline.epochs (source_id, epoch, system_identifier, from_lsn, previous_position, reason)
select id, %s::integer, '1', 100, 50, 'the slot was lost' from pipeline.sources
"""
COMPARED = """
insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind, state)
select source_id, %s::integer, table_oid, table_schema, table_name, 'differences', %s::text
from pipeline.snapshot_tables where table_name = %s
"""


@pytest.fixture
def reports(adding: Adding, follower_dsn: str) -> RegisteredFollower:
    """A follower of two tables, of which `parted` has no key."""
    adding.add(follower_dsn, tables=("public.orders", "public.parted"))
    adding.known.log.execute("update pipeline.snapshot_tables set keyed = table_name = 'orders'")
    [found] = registry.find(adding.known.log)
    return found


def oid(reports: RegisteredFollower, table: str) -> int:
    [found] = [each.table_oid for each in reports.table_states if each.table_name == table]
    return found


def gap(adding: Adding, reports: RegisteredFollower, *copied: str, epoch: int = 0) -> EpochGap | None:
    here = FollowerPosition(reports.source_id, reports.name, epoch, 5)
    copies = {oid(reports, table): SnapshotCopy(2, "1:1:", 100) for table in copied}
    names = {each.table_oid: f"{each.table_schema}.{each.table_name}" for each in reports.table_states}
    return epoch_gaps.find_first(adding.known.log, reports, names, here, copies)


def test_it_stops_before_the_first_epoch_of_which_a_table_lacks_something(
    adding: Adding, reports: RegisteredFollower
) -> None:
    assert gap(adding, reports) is None
    for number in (1, 2):
        adding.known.log.execute(EPOCH, (number,))
    found = gap(adding, reports)
    resync = "copy these tables again: `pipeline followers resync reports public.orders public.parted`"
    assert found == EpochGap(1, "the slot was lost", "public.orders, public.parted", resync)
    assert (later := gap(adding, reports, epoch=1)) is not None
    assert later.epoch == 2
    assert gap(adding, reports, epoch=2) is None


def test_what_is_compared_or_copied_since_lacks_nothing(adding: Adding, reports: RegisteredFollower) -> None:
    log = adding.known.log
    for number in (1, 2):
        log.execute(EPOCH, (number,))
    keyed = gap(adding, reports, "parted")
    assert keyed is not None
    assert (keyed.epoch, keyed.tables) == (1, "public.orders")
    assert keyed.remedy.endswith("`pipeline backfill start public.orders --differences`")
    for state in ("failed", "cancelled"):
        log.execute(COMPARED, (1, state, "orders"))
        assert gap(adding, reports, "parted") == keyed
    log.execute(COMPARED, (1, "complete", "orders"))
    assert (second := gap(adding, reports, "parted")) is not None
    assert second.epoch == 2
    log.execute(COMPARED, (2, "waiting", "orders"))
    assert gap(adding, reports, "parted") is None
    assert gap(adding, reports, "parted", "orders") is None
    for number in (1, 2):
        log.execute(COMPARED, (number, "complete", "parted"))
    keyless = gap(adding, reports)
    assert keyless is not None, "which rows of a table without a key were deleted, no comparison says"
    assert keyless.tables == "public.parted"


def test_a_comparison_that_is_about_to_begin_is_waited_for(adding: Adding, reports: RegisteredFollower) -> None:
    adding.known.log.execute(EPOCH, (1,))
    adding.known.log.execute("update pipeline.sources set rereads_epoch = 1")
    with pytest.raises(DatabaseUnavailableError, match="about to compare tables with the log, since epoch 1"):
        gap(adding, reports)


def test_who_has_declared_its_tables_equal_since_then_lacks_nothing(
    adding: Adding, reports: RegisteredFollower
) -> None:
    adding.known.log.execute(EPOCH, (1,))
    adding.known.log.execute("update pipeline.epochs set started_at = now() - interval '1 day'")
    declared = replace(reports, copy_mode="none", made_seq=5)
    assert gap(adding, declared) is None
    assert gap(adding, replace(declared, made_seq=6)) is not None, "its position is older"
