"""A log of one transaction, for the tests of what is written at once or adopted behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, insert, staging_of


@pytest.fixture(scope="module")
def made(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as staged:
        yield staged


@pytest.fixture
def staged(made: Staged) -> Staged:
    """One transaction is in the log, which a shuffler has opened."""
    made.reset()
    made.moved(insert("orders", id="1"))
    return made
