"""Every kind of table, from a real source to the log and to a follower: each event as it must be, and what the follower
has in the end; no statement of users fails.

The kinds are in the modules beside this one, all on one source at once: statements fail there if we make them fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.fidelity import follower_page
from tests.fidelity.tables import page
from tests.fidelity.tables.case import Kind
from tests.fidelity.tables.stage import Played, played
from tests.fixtures.postgres import BETWEEN, Cluster

pytestmark = pytest.mark.xdist_group("table kinds")  # for --dist loadgroup: each source is played once

Play = Callable[[Kind, int, bool], Played]
"""Of a kind and a version, and whether there are followers beside the source."""
CASES = [(kind, major) for major in page.MAJORS for kind in page.KINDS if kind.since <= major <= kind.upto]
FOLLOWED = 18
"""At followers the others are proved by the long tests."""


@pytest.fixture(scope="module")
def plays(clusters: Callable[[int], Cluster], cluster: Cluster) -> Iterator[Play]:
    """All kinds of one publication and version, and of these those that only old versions have, or all others."""
    with ExitStack() as stack:

        @cache
        def begun(major: int, publication: str, is_old: bool, follow: bool) -> Played | Exception:
            chosen = major, publication, is_old
            kinds = [kind for kind, of_major in CASES if (of_major, kind.publication, _is_old(kind)) == chosen]
            play = played(clusters(major), cluster, kinds, follow=follow, publication=publication)
            try:
                return stack.enter_context(play)
            except Exception as error:  # of all kinds: no test waits for it again
                return error

        def of(kind: Kind, major: int, follow: bool) -> Played:
            if isinstance(found := begun(major, kind.publication, _is_old(kind), follow), Exception):
                raise found
            return found

        yield of


def _is_old(kind: Kind) -> bool:
    return kind.upto < FOLLOWED


def each_kind(is_long: Callable[[Kind, int], bool]) -> pytest.MarkDecorator:
    """On each version, on some in the long tests only."""
    return pytest.mark.parametrize(
        ("kind", "major"),
        [
            pytest.param(kind, major, id=f"{kind.name}-{major}", marks=[pytest.mark.long] * is_long(kind, major))
            for kind, major in CASES
        ],
    )


@each_kind(lambda kind, major: major == BETWEEN or (major < FOLLOWED and not _is_old(kind)))
def test_the_log_has(kind: Kind, major: int, plays: Play) -> None:
    assert plays(kind, major, major == FOLLOWED).events[kind.schema] == list(kind.events)


@each_kind(lambda _, major: major != FOLLOWED)
def test_a_follower_has(kind: Kind, major: int, plays: Play) -> None:
    assert plays(kind, major, True).followers[kind.schema] == kind.follower


def test_schemas_of_kinds_differ() -> None:
    assert len({kind.schema for kind in page.KINDS}) == len(page.KINDS)


def test_the_pages_say_what_is_proved() -> None:
    """`make generated` writes them."""
    assert page.PART.is_current(page.table())
    assert follower_page.KINDS_PART.is_current(follower_page.kinds())
    assert follower_page.DDL_PART.is_current(follower_page.ddl())
