"""A fault at every place inside of a step where it could hurt: after each, the log equals what was committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.fixtures.diagnosis import diagnosis
from tests.torture.faults import acts
from tests.torture.faults.points import POINTS, Place, Point
from tests.torture.faults.traps import Trap
from tests.torture.rig import Rig
from tests.torture.stage import Stage, Way

MAJOR = 18
pytestmark = pytest.mark.xdist_group(f"rig {MAJOR}")  # for --dist loadgroup: one pair of servers of each version


class SharedStage:
    """The stage that points share, one after the other; one that a failed point has left is not used again."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._stage: Stage | None = None
        self._way: Way = "staged"

    def stage(self, place: Place) -> Stage:
        if place.fresh or place.way != self._way:
            self.leave()
        self._way = place.way
        if self._stage is None:
            self._stage = Stage(self._rig, place.way)
        return self._stage

    def leave(self) -> None:
        if self._stage is not None:
            self._stage.close()
        self._stage = None


@pytest.fixture(scope="module")
def shared_stage(rigs: Callable[[int], Rig]) -> Iterator[SharedStage]:
    shared_stage = SharedStage(rigs(MAJOR))
    yield shared_stage
    shared_stage.leave()


@pytest.mark.parametrize(
    "point", [pytest.param(point, id=point.name, marks=[pytest.mark.long] * point.is_long) for point in POINTS]
)
def test_the_log_equals_what_was_committed_when(point: Point, shared_stage: SharedStage):
    stage = shared_stage.stage(point.place)
    try:
        play(stage, point)
    except BaseException:
        with suppress(Exception):
            print(stage.scene.logs())
            print(diagnosis(stage.scene.source_dsn, stage.scene.log_dsn))
        shared_stage.leave()
        raise


def play(stage: Stage, point: Point) -> None:
    place = point.place
    if not place.fresh:
        stage.ready()
        stage.script.small()
        stage.see_all()
    if place.prepare is not None:
        place.prepare(stage)
    trap = armed(stage, point)
    if place.fresh:
        stage.start()
    stage.before = stage.witness.last
    stage.settled.clear()
    place.provoke(stage.script)
    stage.settled.set()
    trap.wait()
    stage.rig.source.proxy.disarm()
    stage.rig.log.proxy.disarm()
    if point.fault.then is not None:
        point.fault.then(stage)
    stage.script.small()
    stage.finish()


def armed(stage: Stage, point: Point) -> Trap:
    place = point.place

    def act() -> None:
        if place.first is not None:
            place.first(stage)
        point.fault.act(stage)

    trap = Trap(
        place.connection,
        place.what,
        act,
        nth=place.nth,
        when="after" if place.answered else "before",
        then="cut" if point.fault.then is None else "pass",
        half=place.half,
        keepalive=keepalive(stage, place),
    )
    if place.paced:
        acts.pace(stage, place.paced, trap)
    return (stage.rig.source if place.at_source else stage.rig.log).proxy.arm(trap)


def keepalive(stage: Stage, place: Place) -> Callable[[int], int] | None:
    """The wal_end of the keepalive to send, from the open transaction's final_lsn."""
    if not place.keepalive:
        return None
    if place.keepalive == "commit":  # what walsenders send
        return lambda final_lsn: final_lsn
    return lambda final_lsn: stage.script.flushed()  # what the protocol says that they send
