"""Routes that change while a backlog waits to become partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.config.routes import Route
from pipeline.log.table import EventsTable
from tests.fixtures.adopting import adopt, batch
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Staged, Table, insert, staging_of

ELSEWHERE = EventsTable("public", "order_events")
ROUTE = Route(tables=("public.orders",), events_table=str(ELSEWHERE))


@pytest.fixture
def staged(cluster: Cluster) -> Iterator[Staged]:
    """One transaction is in the log."""
    with staging_of(cluster, Table("orders"), Table("others")) as made:
        made.moved(insert("orders", id="1"))
        yield made


def test_what_waits_when_routes_change_goes_by_the_new_ones(staged: Staged) -> None:
    adopt(staged, batch(staged, 1_000, 10), batch(staged, 2_000, 250), batch(staged, 3_000, 10))
    move(staged.shuffler(routes=(ROUTE,)))
    (changed,) = staged.connection.execute("select after_lsn from pipeline.routes order by id desc limit 1").fetchall()
    assert changed[0] < 1_000
    here = staged.connection.execute("select count(*) from sequin_events").fetchall()
    there = staged.connection.execute(f"select commit_lsn, count(*) from {ELSEWHERE} group by 1 order by 1").fetchall()
    assert (here, there) == ([(1,)], [(1_000, 10), (2_000, 250), (3_000, 10)])
    assert staged.connection.execute("select from pipeline.adopted_tables").fetchall() == []
