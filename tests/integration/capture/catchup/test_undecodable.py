"""A transaction that the source cannot send, inside of a part: the stop is where one slot would have stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline.capture.source import blocked_transactions
from pipeline.config.settings import Config
from pipeline.errors import UndecodableChangeError
from pipeline.postgres import connections
from tests.fixtures.postgres import Cluster
from tests.fixtures.replicating import ended
from tests.fixtures.shuffling import stored
from tests.fixtures.two_logs import PATIENCE, CatchingUp, catching_up


@pytest.fixture
def stage(clusters: Callable[[int], Cluster]) -> Iterator[CatchingUp]:
    with catching_up(clusters(18), clusters(16), encoding="SQL_ASCII") as made:
        yield made


def skip(config: Config) -> int:
    """Where it stops; the transaction there is skipped from now on."""
    error = ended(config, PATIENCE)
    assert isinstance(error, UndecodableChangeError), error
    with connections.connect(config.database, "pipeline database") as log:
        stop = blocked_transactions.current(log, stored(log).id)
        assert stop is not None
        assert blocked_transactions.request_skip(log, stored(log).id, stop.commit_lsn)
    return stop.commit_lsn


def test_it_stops_there_and_goes_on_behind_it_as_one_slot_does(stage: CatchingUp):
    stage.backlog(200)
    stage.source.execute(b"insert into item values (-1, 'x'), (-2, E'\\xe9'), (-3, 'y')")
    stage.backlog(150)
    at = skip(stage.many)
    stage.drain(stage.many)
    assert skip(stage.one) == at
    stage.require_equal_logs()
