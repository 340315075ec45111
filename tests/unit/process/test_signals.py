"""What long-running processes share."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from pipeline.process.signals import StopSignal, in_thread


def test_a_thread_nobody_wants_the_answer_of_comes_to_its_end_first() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(20)
        ended.set()
        raise ValueError("no caller asks for this")

    async def run() -> None:
        task = asyncio.ensure_future(in_thread(work))
        assert await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(run())


def test_answers_and_errors_come_as_they_are() -> None:
    async def run() -> None:
        assert await in_thread(int, "7") == 7
        with pytest.raises(ValueError, match="invalid literal"):
            await in_thread(int, "x")

    asyncio.run(run())


def test_a_stop_wakes_all_threads_that_wait_for_it_and_calls_back_once() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    calls: list[bool] = []
    try:
        stop = StopSignal(ignore_interrupt=False)
        stop.then(lambda: calls.append(bool(stop)))
        waiting = threading.Thread(target=stop.wait, args=(60.0,))
        waiting.start()
        assert not stop.wait(0.001)
        for number in before:  # a service manager sends one to every process, and the supervisor another one
            signal.raise_signal(number)
        waiting.join(20)
        assert (waiting.is_alive(), stop.wait(60.0), calls) == (False, True, [True])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
