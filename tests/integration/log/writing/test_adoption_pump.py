"""How the worker's pump stores what it has taken of a backlog."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.capture.replication import staging_pump
from pipeline.capture.replication.batch_builder import BatchBuilder
from pipeline.capture.replication.confirm_rule import ConfirmRule
from pipeline.capture.replication.progress_reporter import ProgressReporter
from pipeline.capture.replication.staging_pump import StagingPump
from pipeline.log.writing import partitioned_backlog
from pipeline.log.writing.log_writer import LogWriter
from tests.fixtures.adopting import batch, begun, events, places, waiting, writing
from tests.fixtures.staged import Staged
from tests.fixtures.waiting import PATIENCE


async def unchecked(_: int) -> None:
    """Nothing is checked before rows are staged."""


def test_a_worker_inside_a_segment_yields_to_tasks_that_await_its_position(staged: Staged):
    async def does(writer: LogWriter) -> None:
        await writer.append(begun(staged, 1_000, 5), durable=False)
        idle = ConfirmRule(writer.position)
        idle.held = True
        idle.resume(0)
        idle.want(0)
        never: Any = None
        pump = StagingPump(
            BatchBuilder(idle), writer, idle, ProgressReporter(never, idle, int), lambda: False, unchecked
        )
        pump.begin()
        running = asyncio.create_task(pump.run())
        await asyncio.sleep(0.1)
        assert (running.done(), waiting(staged), writer.position) == (False, [], 100)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await writer.settle(finish=True)
        assert writer.position == 100

    writing(staged, does)


def test_what_is_held_is_stored_soon_after_the_last_that_came(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """Not only when it is time to confirm something."""
    monkeypatch.setattr(staging_pump, "CONFIRM_EVERY", 3_600.0)
    monkeypatch.setattr(partitioned_backlog, "SETTLE_AFTER", 0.05)

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 4), durable=False)
        idle = ConfirmRule(writer.position)
        idle.held = True
        idle.resume(0)
        never: Any = None
        pump = StagingPump(
            BatchBuilder(idle), writer, idle, ProgressReporter(never, idle, int), lambda: False, unchecked
        )
        pump.begin()
        running = asyncio.create_task(pump.run())
        async with asyncio.timeout(PATIENCE):
            while True:
                if idle.position == 1_001:
                    break
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)  # it may have begun to tell a source of it
        assert writer.position == 1_001

    writing(staged, does)
    staged.shuffle()
    assert events(staged) == places((1_000, 4))
