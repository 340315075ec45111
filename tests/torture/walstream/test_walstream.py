"""walstream's clients under random writers, deaths and crashes: some seconds here, ten minutes in `make torture`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fixtures.postgres import Cluster
from tests.torture.walstream import trials
from tests.torture.walstream.role import ANY_SESSION

SECONDS = 3.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with trials.stage(18) as made:
        yield made


def test_clients_are_given_what_they_were_promised(cluster: Cluster):
    seed = random.SystemRandom().randrange(10**6)
    outcome = trials.play(cluster, seed, SECONDS)
    assert outcome.wrong == [], outcome
    assert outcome.counts["events"] > 0


@pytest.mark.long
def test_a_broken_promise_is_noticed(cluster: Cluster):
    """A position that follows the session that has acknowledged most, as in the system that this one follows."""
    outcomes = (trials.play(cluster, seed, SECONDS, ANY_SESSION) for seed in range(30))
    assert any(outcome.wrong for outcome in outcomes)
