"""Three followers under random writers, DDL, deaths and crashes: some seconds here, 20 minutes in `make torture`."""

from __future__ import annotations

import random

import pytest

from tests.torture.followers import trials

SECONDS = 20.0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_a_reader_sees_is_the_source_after_a_transaction() -> None:
    seed = random.SystemRandom().randrange(10**6)
    with trials.stage(18, 18) as place:
        outcome = trials.play(place, seed, SECONDS)
    assert outcome.wrong == [], outcome
    assert outcome.counts["looks"] > 0
