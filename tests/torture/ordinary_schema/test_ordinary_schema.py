"""A follower of an ordinary schema that is migrated, for some seconds; twenty minutes of it in `make torture`."""

from __future__ import annotations

import random

import pytest

from tests.torture.ordinary_schema import trials

SECONDS = 15.0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_follower_of_an_ordinary_schema_is_equal_at_each_pause():
    seed = random.SystemRandom().randrange(10**6)
    outcome, report = trials.play(18, 18, seed, SECONDS)
    assert outcome.wrong == [], (outcome, report)
    assert outcome.counts["comparisons"] > 0
