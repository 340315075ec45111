"""Partitions that come and go with rows, for some seconds; twenty minutes of it in `make torture`."""

from __future__ import annotations

import random

import pytest

from tests.torture.partitions import trials

SECONDS = 15.0


@pytest.mark.long
@pytest.mark.parametrize("major", [18, 16])
def test_the_log_says_the_truth_of_a_table_whose_partitions_come_and_go(major: int):
    seed = random.SystemRandom().randrange(10**6)
    with trials.stage(major) as cluster:
        outcome = trials.play(cluster, seed, SECONDS)
    assert outcome.wrong == [], outcome
    assert outcome.counts["attach"] > 0
