"""One source of each version, with all tables of the tests, replicated as long as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fidelity.types import tables
from tests.fidelity.types.kinds import Kinds
from tests.fidelity.types.stage import Comparing
from tests.fixtures.postgres import NEWEST, Cluster
from tests.fixtures.stage import databases


@pytest.fixture(scope="session")
def stages(clusters: Callable[[int], Cluster], cluster: Cluster) -> Iterator[Callable[[int], Comparing]]:
    """`stages(15)`: its source is of that version; made at the first call."""
    with ExitStack() as stack:
        made: dict[int, Comparing] = {}

        def stage(major: int) -> Comparing:
            if major not in made:
                config = stack.enter_context(databases(clusters(major), cluster))
                made[major] = stack.enter_context(Comparing(config))
                tables.create(made[major].source)
            return made[major]

        yield stage


@pytest.fixture(scope="session", params=NEWEST)
def stage(request: pytest.FixtureRequest, stages: Callable[[int], Comparing]) -> Comparing:
    """Each version in turn; the older one in long tests, and in test_types.py."""
    return stages(request.param)


@pytest.fixture(scope="session", params=NEWEST)
def kinds(request: pytest.FixtureRequest, stages: Callable[[int], Comparing]) -> Kinds:
    """Rows that are there once for all tests."""
    return Kinds(stages(request.param))
