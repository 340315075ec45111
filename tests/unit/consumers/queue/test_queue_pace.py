"""The log comes first while it lags and cores are short; queues get their share all the same, and near the head all."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.consumers.queue import queue_pace
from pipeline.consumers.queue.queue_apply import CatchUpResult
from pipeline.consumers.queue.queue_pace import (
    BUSY_TURN,
    IDLE_TURN,
    LAG_BYTES,
    LAG_EVERY,
    LATE_AFTER,
    LATE_SHARE,
    LONGEST_PAUSE,
    SHARE,
    QueuePace,
)
from pipeline.process.run_delay import ShortCores

FAR = LAG_BYTES + 1
ASKED_EVERY = 0.001


class Server(ShortCores):
    """A shuffler's clock, cores and log in the test's hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, short: float = 1.0, lag: int = FAR) -> None:
        super().__init__()
        self.now, self.short, self.lag = 1000.0, short, lag
        monkeypatch.setattr(queue_pace, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.pace = QueuePace(lambda: self.lag, self)
        self.turns: list[float] = []

    def degree(self) -> float:
        return self.short

    def runs(
        self,
        seconds: float,
        *,
        took: float = 0.05,
        left: float | None = None,
        found: CatchUpResult = CatchUpResult.LAGGING,
    ) -> float:
        """Ask for a turn all the time; each takes this long. Returns the share of the time that turns had."""
        began, before = self.now, sum(self.turns)
        while self.now < began + seconds:
            self.now += ASKED_EVERY
            if (turn := self.pace.begin_turn(left, has_queues=True)) is not None:
                self.now += took
                self.turns.append(took)
                self.pace.end_turn(turn, found)
        return (sum(self.turns) - before) / (self.now - began)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Its log lags, its cores are short, and it has queues that lag, too."""
    made = Server(monkeypatch)
    made.runs(1.0)
    return made


def test_queues_have_their_share_while_the_log_lags_and_cores_are_short(server: Server):
    assert server.runs(60.0) == pytest.approx(SHARE, rel=0.1)


def test_they_wait_for_no_longer_than_a_pause_however_long_a_turn_takes(server: Server):
    server.runs(30.0, took=10.0)
    server.now += LONGEST_PAUSE
    assert server.pace.begin_turn(None, has_queues=True) is not None


@pytest.mark.parametrize("changed", [{"short": 0.0}, {"lag": LAG_BYTES}])
def test_queues_get_all_of_the_time_if_cores_are_free_or_nothing_lags(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, int]
):
    server = Server(monkeypatch)
    server.runs(1.0)
    vars(server).update(changed)
    server.runs(1.0)
    assert server.runs(10.0) > 0.95
    turn = server.pace.begin_turn(None, has_queues=True)
    assert turn is not None
    assert turn.within == IDLE_TURN
    assert server.pace.rest is None


def test_their_share_is_in_between_where_cores_are_a_little_short(monkeypatch: pytest.MonkeyPatch):
    server = Server(monkeypatch, short=0.1)
    server.runs(1.0)
    assert 2 * SHARE < server.runs(60.0) < 0.9


def test_near_the_head_nothing_waits_though_cores_are_short(monkeypatch: pytest.MonkeyPatch):
    server = Server(monkeypatch, lag=0)
    for _ in range(1_000):
        server.now += 0.01
        turn = server.pace.begin_turn(None, has_queues=True)
        assert turn is not None
        server.now += 0.001
        server.pace.end_turn(turn, CatchUpResult.ALL)


def test_they_have_all_of_the_time_as_soon_as_the_log_has_caught_up(server: Server):
    turn = server.pace.begin_turn(None, has_queues=True)
    while turn is None:
        server.now += ASKED_EVERY
        turn = server.pace.begin_turn(None, has_queues=True)
    server.now += 0.1
    server.pace.end_turn(turn, CatchUpResult.LAGGING)
    rest = server.pace.rest
    assert rest is not None
    assert rest > LAG_EVERY
    server.lag = 0
    server.now += LAG_EVERY
    assert server.pace.begin_turn(None, has_queues=True) is not None


def test_a_queue_that_waited_long_gets_half_of_the_time_until_the_head(server: Server):
    server.runs(LATE_AFTER / (1 - SHARE))
    assert server.runs(60.0) == pytest.approx(LATE_SHARE, rel=0.1)
    server.runs(0.1, found=CatchUpResult.ALL)
    assert server.runs(60.0) == pytest.approx(SHARE, rel=0.1)


def test_a_log_that_moves_comes_first_too_whatever_cores_there_are(monkeypatch: pytest.MonkeyPatch):
    server = Server(monkeypatch, short=0.0, lag=0)
    assert server.runs(60.0, took=BUSY_TURN, left=0.0) == pytest.approx(SHARE, rel=0.1)


def test_in_the_time_until_more_is_moved_a_turn_takes_no_longer_than_that(monkeypatch: pytest.MonkeyPatch):
    server = Server(monkeypatch, short=0.0, lag=0)
    turn = server.pace.begin_turn(0.01, has_queues=True)
    assert turn is not None
    server.now += 0.1
    server.pace.end_turn(turn, CatchUpResult.LAGGING)
    turn = server.pace.begin_turn(0.01, has_queues=True)
    assert turn is not None
    assert turn.within == turn.free == 0.01


def test_where_cores_are_short_and_the_log_lags_that_time_is_not_taken(server: Server):
    assert server.runs(60.0, took=BUSY_TURN, left=0.01) == pytest.approx(SHARE, rel=0.1)
