"""The pipeline database goes back at random moments under load: no reader takes one event for another."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.restoring import Kind, restoring

TIMES: dict[Kind, int] = {"dump": 10, "base backup": 5, "promotion": 1, "promotion with a loss": 1}
"""One of the dumps is restored twice."""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_reader_takes_one_event_for_another_after_a_restore(
    cluster: Cluster,
    clusters: Callable[[int], Cluster],
    server_directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert {*TIMES, "dump again"} == {*get_args(Kind)}
    kinds = [kind for kind, times in TIMES.items() for _ in range(times)]
    random.Random(5).shuffle(kinds)
    kinds.insert(1 + kinds.index("dump"), "dump again")
    with restoring(cluster, clusters(16), server_directory, tmp_path) as rig:
        for kind in kinds:
            rig.lose(kind)
        rig.end()
        assert rig.lost > 100
        assert rig.lake.set_aside > 5
    with capsys.disabled():
        print(f"\n{rig.report()}")
