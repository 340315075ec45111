"""Every kind of table, from a real source to the log: each event as it must be, and no statement of users fails.

The kinds are in the modules beside this one, all on one source at once: statements fail there if we make them fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fidelity.tables import page
from tests.fidelity.tables.case import Event, Kind
from tests.fidelity.tables.stage import played
from tests.fixtures.postgres import Cluster

pytestmark = pytest.mark.xdist_group("table kinds")  # for --dist loadgroup: each source is played once

Played = Callable[[int, str], dict[str, list[Event]]]
CASES = [(kind, major) for major in page.MAJORS for kind in page.KINDS if kind.since <= major <= kind.upto]
BETWEEN = 16
"""Proved by the long tests: what is so before and after it has not been otherwise there yet."""


@pytest.fixture(scope="module")
def logs(clusters: Callable[[int], Cluster], cluster: Cluster) -> Iterator[Played]:
    """The events of all kinds of one publication and version, played at the first call."""
    made: dict[tuple[int, str], dict[str, list[Event]]] = {}
    with ExitStack() as stack:

        def of(major: int, publication: str) -> dict[str, list[Event]]:
            if (major, publication) not in made:
                kinds = [kind for kind, of_major in CASES if (of_major, kind.publication) == (major, publication)]
                play = played(clusters(major), cluster, kinds, publication=publication)
                made[major, publication] = stack.enter_context(play)
            return made[major, publication]

        yield of


@pytest.mark.parametrize(
    ("kind", "major"),
    [
        pytest.param(kind, major, id=f"{kind.name}-{major}", marks=[pytest.mark.long] if major == BETWEEN else [])
        for kind, major in CASES
    ],
)
def test_the_log_has(kind: Kind, major: int, logs: Played) -> None:
    assert logs(major, kind.publication)[kind.schema] == list(kind.events)


def test_schemas_of_kinds_differ() -> None:
    assert len({kind.schema for kind in page.KINDS}) == len(page.KINDS)


def test_the_page_says_what_is_proved() -> None:
    """`python -m tests.fidelity.tables.page` writes it."""
    assert page.PART.is_current(page.table())
