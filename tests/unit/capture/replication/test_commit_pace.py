"""Commits are further apart only where cores are short, and never further than is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.capture.replication.commit_pace import BUSY_PACE, BUSY_ROWS, LONGEST, CommitPace
from pipeline.capture.replication.confirm_rule import PACE
from pipeline.process import run_delay
from pipeline.process.run_delay import SCHEDSTAT, RunDelay, ShortCores


class Scheduler:
    """A schedstat file in the test's hands."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._ran = self._waited = 0
        self.runs(0, 0)

    def runs(self, ran: int, waited: int) -> None:
        self._ran, self._waited = self._ran + ran, self._waited + waited
        self.file.write_text(f"{self._ran} {self._waited} 12\n")


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    return Scheduler(tmp_path / "schedstat")


def paces(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, *looks: tuple[int, int], rows: int = 1) -> list[float]:
    """What the pace is after each look, in which the process has run and waited for these times."""
    clock = iter(float(second) for second in range(len(looks)))
    # The module's own name: whatever else runs in this process keeps its clock.
    monkeypatch.setattr(run_delay, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    pace = CommitPace(ShortCores(RunDelay(scheduler.file)))
    found = []
    for ran, waited in looks:
        scheduler.runs(ran, waited)
        found.append(pace.after(rows, stretches=True))
    return found


def test_it_is_short_where_cores_are_free(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch):
    assert paces(scheduler, monkeypatch, (10, 0), (0, 0), (10, 5)) == [PACE] * 3
    assert paces(scheduler, monkeypatch, (10, 0), rows=BUSY_ROWS) == [BUSY_PACE]


def test_it_lengthens_while_they_are_short_and_is_short_again_after_that(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
):
    found = paces(scheduler, monkeypatch, *[(10, 90)] * 12, *[(10, 0)] * 12)
    assert found[:12] == sorted(found[:12])
    assert found[11] == pytest.approx(LONGEST, rel=0.01)
    assert max(found) <= LONGEST
    assert found[-1] == pytest.approx(PACE, rel=0.01)


def test_it_is_in_between_where_they_are_a_little_short(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch):
    assert PACE < paces(scheduler, monkeypatch, *[(40, 60)] * 12)[-1] < LONGEST


def test_a_way_that_does_not_stretch_has_the_same_pace_always(scheduler: Scheduler):
    pace = CommitPace(ShortCores(RunDelay(scheduler.file)))
    scheduler.runs(0, 100)
    assert pace.after(1, stretches=False) == PACE


@pytest.mark.parametrize("text", [None, "", "1 2"])
def test_without_what_the_scheduler_says_cores_count_as_free(tmp_path: Path, text: str | None):
    file = tmp_path / "schedstat"
    if text is not None:
        file.write_text(text)
    assert RunDelay(file).share() == 0.0


@pytest.mark.skipif(not SCHEDSTAT.exists(), reason="no such file here")
def test_what_this_scheduler_says_can_be_read():
    delay = RunDelay()
    sum(range(1_000_000))
    assert 0.0 <= delay.share() <= 1.0
    assert delay._before[0] > 0
