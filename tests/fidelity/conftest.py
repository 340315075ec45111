"""One source of each version, with all tables of the tests, replicated as long as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fidelity import tables
from tests.fidelity.stage import Stage
from tests.fixtures.postgres import Cluster

MAJORS = (18, 15)


@pytest.fixture(scope="session")
def stages(clusters: Callable[[int], Cluster], cluster: Cluster) -> Iterator[Callable[[int], Stage]]:
    """`stages(15)`: its source is of that version; made at the first call."""
    with ExitStack() as stack:
        made: dict[int, Stage] = {}

        def stage(major: int) -> Stage:
            if major not in made:
                source_dsn = stack.enter_context(clusters(major).database("source"))
                database_dsn = stack.enter_context(cluster.database("events", cluster.template))
                made[major] = Stage(source_dsn, database_dsn)
                stack.callback(made[major].close)
                tables.create(made[major].source)
            return made[major]

        yield stage


@pytest.fixture(scope="session", params=MAJORS)
def stage(request: pytest.FixtureRequest, stages: Callable[[int], Stage]) -> Stage:
    """Each version in turn."""
    return stages(request.param)
