"""Consumers under random writers, clients and crashes, for as long as `make test` has; more by `make torture`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged
from tests.torture.consumers import trials
from tests.torture.consumers.mutations import mutated

SECONDS = 4.0


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[Cluster, Staged]]:
    with trials.stage(18) as made:
        yield made


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long)])
def test_consumers_are_given_what_they_were_promised(stage: tuple[Cluster, Staged], number: int):
    seed = random.SystemRandom().randrange(10**6)
    outcome = trials.Round(*stage, seed).play(SECONDS)
    assert outcome.wrong == [], f"round {number}: {outcome}"
    assert outcome.counts["acknowledged"] > 0


@pytest.mark.long
def test_a_broken_promise_is_noticed(stage: tuple[Cluster, Staged]):
    """A delete that wins over a later insert, as in the system that this one follows."""
    seen: Counter[str] = Counter()
    with mutated(stage[1].dsn, "delete wins bluntly"):
        for seed in range(5):
            outcome = trials.Round(*stage, seed).play(SECONDS)
            seen += outcome.counts
            if outcome.wrong:
                return
    pytest.fail(f"nothing was noticed in {dict(seen)}")
