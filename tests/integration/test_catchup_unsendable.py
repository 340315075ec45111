"""A transaction that the source cannot send, inside of a part: the stop is where one slot would have stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline import db
from pipeline.catalog import sources, stops
from pipeline.config import Config
from pipeline.errors import Unsendable
from tests.fixtures.postgres import Cluster
from tests.fixtures.replicating import Replicating
from tests.fixtures.two_logs import PATIENCE, CatchingUp, catching_up
from tests.fixtures.waiting import eventually


@pytest.fixture
def stage(clusters: Callable[[int], Cluster]) -> Iterator[CatchingUp]:
    with catching_up(clusters(18), clusters(16), encoding="SQL_ASCII") as made:
        yield made


def skip(config: Config) -> int:
    """Where it stops; the transaction there is passed over from now on."""
    with Replicating(config) as replicating:
        eventually(lambda: replicating._error is not None, PATIENCE)
        error = replicating.ended()
    assert isinstance(error, Unsendable), error
    with db.connect(config.database, "pipeline database") as log:
        stored = sources.find(log, None)
        assert stored is not None
        stop = stops.current(log, stored.id)
        assert stop is not None
        assert stops.request(log, stored.id, stop.commit_lsn)
    return stop.commit_lsn


def test_it_stops_there_and_goes_on_behind_it_as_one_slot_does(stage: CatchingUp):
    stage.backlog(200)
    stage.source.execute(b"insert into item values (-1, 'x'), (-2, E'\\xe9'), (-3, 'y')")
    stage.backlog(150)
    at = skip(stage.many)
    stage.drain(stage.many)
    assert skip(stage.one) == at
    stage.require_equal_logs()
