"""Print the progress of a backfill for `--wait`: a bar on a terminal, otherwise a line every two seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn
from rich.progress import Progress as Bar

from pipeline.snapshots import render
from pipeline.snapshots.status import NO_SERVER, BackfillStatus
from pipeline.terminal import drawing
from pipeline.terminal.bars import TextColumn
from pipeline.terminal.drawing import EscapedConsole

_PLAIN_EVERY = 2.0
_RATE_SECONDS = 10.0
"""The rate is the average over this many seconds."""


class ProgressPrinter(Protocol):
    """Prints a status of the backfill. `served`: a server runs that reads tables."""

    def __call__(self, now: BackfillStatus, *, served: bool) -> None: ...


class RecentRowRate:
    """The rows a second that a backfill has read in the last seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def add(self, rows: int, moment: float) -> float | None:
        """Add the number of rows read by now, and return the rate; None until it is known."""
        self._looks.append((moment, rows))
        while len(self._looks) > 2 and moment - self._looks[1][0] >= _RATE_SECONDS:
            self._looks.popleft()
        since, before = self._looks[0]
        return (rows - before) / (moment - since) if rows > before and moment > since else None


@contextmanager
def progress_printer(as_json: Callable[[BackfillStatus], None] | None = None) -> Iterator[ProgressPrinter]:
    """Yield a function that prints the progress. `as_json`: this function gets each changed status instead."""
    console = drawing.console()
    if as_json or not console.is_terminal:
        yield _json(as_json) if as_json else _plain(console)
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[pace]}")
    pace = RecentRowRate()
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, pace="")

        def tell(now: BackfillStatus, *, served: bool) -> None:
            rate = pace.add(now.rows_read, time.monotonic())
            description = f"{now.table} {doing(now, served=served)}"
            bar.update(
                task,
                description=description,
                total=now.ranges_all or None,
                completed=now.ranges_done,
                pace=", ".join(measures(now, rate)),
            )

        yield tell


def doing(now: BackfillStatus, *, served: bool) -> str:
    """Return the state of the backfill, with its current step or the reason why it waits."""
    if not served and not now.ended:
        return f"{now.state}: {NO_SERVER}"
    return f"{now.state}: {now.reason}" if now.reason else now.state


def measures(now: BackfillStatus, rate: float | None) -> Iterator[str]:
    """Yield how far the backfill is, how fast, and how long it still takes."""
    if now.ranges_all:
        yield f"ranges {render.ranges(now)}"
        yield drawing.count(now.rows_read, "row")
    if (found := rate or now.rows_per_second) and not now.ended:
        yield drawing.rate(found)
    if now.seconds_left:
        yield f"{render.time_left(now)} left"


def _plain(console: EscapedConsole) -> ProgressPrinter:
    due, before = 0.0, ""
    pace = RecentRowRate()

    def tell(now: BackfillStatus, *, served: bool) -> None:
        nonlocal due, before
        rate = pace.add(now.rows_read, time.monotonic())
        if now.ended or time.monotonic() < due:
            return
        said = doing(now, served=served)
        if said != before or now.ranges_done:
            console.print(", ".join([f"{now.table} {said}", *measures(now, rate)]))
            console.file.flush()
            due, before = time.monotonic() + _PLAIN_EVERY, said

    return tell


def _json(as_json: Callable[[BackfillStatus], None]) -> ProgressPrinter:
    before: BackfillStatus | None = None

    def tell(now: BackfillStatus, *, served: bool) -> None:
        nonlocal before
        if before is None or _counts(now) != _counts(before):
            as_json(now)
            before = now

    return tell


def _counts(now: BackfillStatus) -> tuple[object, ...]:
    return now.state, now.reason, now.ranges_done, now.ranges_all
