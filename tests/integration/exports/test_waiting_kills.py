"""Large tables whose states wait, while runs are killed: each is what manifest and `status` say, at every moment."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

from pipeline.exports import status as export_status
from tests.fixtures.waiting_lake import TABLES, TRUNCATE, Watched, runs, waiting_lake
from tests.fixtures.waiting_victim import POINTS

MOMENTS = [(when, point) for when in ("before", "after") for point in POINTS]
MOST_RUNS = 6
"""Until one comes by a point: where nothing is folded, no version is begun."""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_states_that_wait_are_what_is_said_of_them(
    database_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(22)
    killed = number = 0
    with waiting_lake(database_dsn, tmp_path) as watched, runs(watched) as run:
        assert run() == 0
        for when, point in MOMENTS:
            for _ in range(MOST_RUNS):
                number += 1
                happens(watched, chance, number)
                status = run(point, when, 1)
                watched.require_true(f"{when} {point}")
                if status == -signal.SIGKILL:
                    killed += 1
                    break
                assert status == 0
            if chance.random() < 0.5:
                assert run() == 0
                watched.require_true(f"a run after that {when} {point}")
        assert run() == 0
        watched.require_true("the last run")
        assert watched.waited > killed / 2, "states were to wait"
        watched.log.execute("update pipeline.export_tables set waits_since = waits_since - interval '2 hours'")
        assert run() == 0
        watched.require_true("once none may wait")
        head = json.loads((watched.lake / "manifest.json").read_bytes())
        assert {state["as_of"] for state in head["current"].values()} == {head["exported_upto"]}
        assert export_status.read(watched.config, watched.log).waiting == 0
    assert killed == len(MOMENTS) == 24
    with capsys.disabled():
        print(f"\n{killed} kills, {watched.looks} states compared, {watched.waited} of them waited")


def happens(watched: Watched, chance: random.Random, number: int) -> None:
    """A few rows of each table change, or so many that it does not wait, or all at once; or time passes."""
    for table, (_, base, rows) in TABLES.items():
        first = base + chance.randint(0, rows - 200)
        kind = chance.choice(("few", "few", "few", "many", "truncate")) if number % 3 else "few"
        if kind == "truncate":
            watched.change(table, 0, 0, statement=TRUNCATE)
            watched.change(table, base, base + rows - 1, "insert")
        watched.change(table, first, first + (rows // 10 if kind == "many" else 5))
        watched.change(table, first + 3, first + 4, "delete")
    if number % 4 == 3:
        watched.log.execute("update pipeline.export_tables set waits_since = waits_since - interval '2 hours'")
