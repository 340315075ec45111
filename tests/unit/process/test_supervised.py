"""Tasks and threads that a process needs start again after an unexpected error."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pipeline.process import supervised

SAID = "unexpected error in the work, which starts again"


class FailingTwice:
    """Work that fails twice, and then returns."""

    def __init__(self) -> None:
        self.calls = 0

    def act(self) -> None:
        self.calls += 1
        if self.calls < 3:
            raise RecursionError(f"call {self.calls}")

    async def act_in_loop(self) -> None:
        self.act()


@pytest.fixture(autouse=True)
def work(monkeypatch: pytest.MonkeyPatch) -> FailingTwice:
    monkeypatch.setattr(supervised, "RESTART_SECONDS", 0)
    return FailingTwice()


def test_a_task_starts_again_after_unexpected_errors(work: FailingTwice, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        await supervised.start_task("the work", work.act_in_loop)

    asyncio.run(run())
    assert_logged(work, caplog.records)


def test_a_thread_starts_again_after_unexpected_errors(work: FailingTwice, caplog: pytest.LogCaptureFixture) -> None:
    supervised.start_thread("the work", work.act).join(60)
    assert_logged(work, caplog.records)


def test_a_supervised_task_can_be_cancelled() -> None:
    async def run() -> None:
        task = supervised.start_task("the work", asyncio.Event().wait)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def assert_logged(work: FailingTwice, records: list[logging.LogRecord]) -> None:
    assert work.calls == 3
    assert [record.getMessage() for record in records] == [SAID] * 2
    assert [str(record.exc_info[1]) for record in records if record.exc_info] == ["call 1", "call 2"]
