"""The demo's screen: live on a terminal, a plain line every two seconds anywhere else."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

ROWS = 6
"""The number of latest events that are shown."""
_COLOURS = {"read": "cyan", "insert": "green", "update": "yellow", "delete": "red"}
_PLAIN_EVERY = 2.0
_RATE_OVER = 3.0


@dataclass(frozen=True)
class ScreenState:
    """The content of the screen. `latest`: seq, table, action, record_pk, record, changes.

    `read` of the `to_read` existing rows have become events, or have been changed since.
    """

    elapsed: float
    seconds: float
    doing: str
    commits: int
    rollbacks: int
    events: int
    lag_bytes: int | None
    lag_seconds: float | None
    counts: Mapping[tuple[str, str], int]
    latest: Sequence[tuple[Any, ...]]
    read: int
    to_read: int


class _Rates:
    """Commits and events per second over the last seconds; at the end, over the whole time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()

    def add(self, now: ScreenState) -> tuple[float, float]:
        if now.elapsed >= now.seconds:
            return now.commits / now.seconds, now.events / now.seconds
        samples = self._samples
        samples.append((time.monotonic(), now.commits, now.events))
        while samples[-1][0] - samples[0][0] > _RATE_OVER:
            samples.popleft()
        (start, commits, events), (end, *_) = samples[0], samples[-1]
        passed = max(end - start, 0.001)
        return (now.commits - commits) / passed, (now.events - events) / passed


def console() -> Console:
    """Return the console of the demo: it interprets no markup, so brackets stay, as in `[demo]` or a folder's name."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def shown(console: Console, tables: Sequence[str]) -> Iterator[Callable[[ScreenState], None]]:
    """Yield a function that shows a state; the last one stays on the screen."""
    rates = _Rates()
    if not console.is_terminal:
        yield _plain(console, rates)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        yield lambda now: live.update(_picture(now, rates.add(now), tables), refresh=True)


def _plain(console: Console, rates: _Rates) -> Callable[[ScreenState], None]:
    due = _PLAIN_EVERY

    def show(now: ScreenState) -> None:
        nonlocal due
        commits, events = rates.add(now)
        if now.elapsed >= due:
            due = now.elapsed + _PLAIN_EVERY
            console.print(
                f"{now.elapsed:5.1f} s  {now.commits:6,} commits ({commits:,.0f}/s)  "
                f"{now.events:7,} events ({events:,.0f}/s)  lag {_lag(now)}  {_rows_read(now)}"
            )

    return show


def _picture(now: ScreenState, rates: tuple[float, float], tables: Sequence[str]) -> Panel:
    body = Group(_headline(now), Text(), _figures(now, rates), Text(), _counts(now, tables), Text(), _events(now))
    title = Text.assemble(("a tea shop", "bold"), "  →  WAL  →  ", ("sequin_events", "bold"))
    return Panel(body, title=title, border_style="cyan", width=100)


def _headline(now: ScreenState) -> Table:
    line = Table.grid(padding=(0, 2), expand=True)
    line.add_column(width=36)
    line.add_column(ratio=1)
    line.add_column(width=12, justify="right")
    bar = ProgressBar(total=now.seconds, completed=min(now.elapsed, now.seconds), complete_style="cyan")
    line.add_row(now.doing, bar, f"{min(now.elapsed, now.seconds):.0f} of {now.seconds:.0f} s")
    return line


def _figures(now: ScreenState, rates: tuple[float, float]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(4):
        grid.add_column(ratio=1, no_wrap=True)
    grid.add_row(
        Text.assemble((f"{rates[0]:,.0f}", "bold"), " commits/s"),
        Text.assemble((f"{rates[1]:,.0f}", "bold"), " events/s"),
        Text.assemble("lag ", (_lag(now), "bold")),
        Text.assemble((f"{now.rollbacks:,}", "bold"), " rolled back"),
    )
    grid.add_row(
        *(
            Text(text, style="dim")
            for text in (f"{now.commits:,} in all", f"{now.events:,} in all", _rows_read(now), "")
        )
    )
    return grid


def _counts(now: ScreenState, tables: Sequence[str]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("table", ratio=2)
    for action, colour in _COLOURS.items():
        table.add_column(action, justify="right", style=colour, ratio=1)
    for name in tables:
        table.add_row(f"shop.{name}", *(f"{now.counts.get((name, action), 0):,}" for action in _COLOURS))
    return table


def _events(now: ScreenState) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("seq", justify="right", width=7)
    table.add_column("table", width=11)
    table.add_column("action", width=6)
    table.add_column("key", width=8, no_wrap=True)
    table.add_column("what", ratio=1, no_wrap=True, overflow="ellipsis")
    for seq, name, action, key, record, changes in [*now.latest, *[("",) * 4 + ({}, None)] * ROWS][:ROWS]:
        what = Text(_short(action, record, changes))
        table.add_row(f"{seq}", name, Text(action, style=_COLOURS.get(action, "")), Text(key), what)
    return table


def _short(action: str, record: Mapping[str, Any], changes: Mapping[str, Any] | None) -> str:
    """Return the interesting part of an event in one line: the changed values if they are known, else all values."""
    if action == "update" and changes:
        parts = [f"{name} {changes[name]} → {record.get(name)}" for name in changes if name != "version"]
    else:
        parts = [f"{name}={value}" for name, value in _interesting(record)]
    return " ".join("  ".join(parts).split(" ")).replace("\n", "↵").replace("\t", " ")


def _interesting(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    first = ("state", "total", "quantity", "sku", "name", "title", "email", "note")
    hidden = ("id", "order_id", "line_no", "version", "customer_id")
    names = [name for name in first if name in record] + [n for n in record if n not in first and n not in hidden]
    yield from ((name, record[name]) for name in names if record[name] is not None)


def _rows_read(now: ScreenState) -> str:
    if now.read >= now.to_read:
        return "all existing rows"
    return f"{100 * now.read // now.to_read} % of existing rows"


def totals(counts: Mapping[tuple[str, str], int]) -> str:
    """Return the number of each action, as text."""
    by_action: Counter[str] = Counter()
    for (_, action), count in counts.items():
        by_action[action] += count
    return ", ".join(f"{by_action[action]:,} {action}s" for action in _COLOURS if action != "read")


def _lag(now: ScreenState) -> str:
    if now.lag_bytes is None:
        return "unknown"
    behind = f"{now.lag_bytes / 1000:,.0f} kB" if now.lag_bytes < 10_000_000 else f"{now.lag_bytes / 1e6:,.0f} MB"
    return f"{behind} behind" if now.lag_seconds is None else f"{now.lag_seconds:.1f} s, {behind} behind"
