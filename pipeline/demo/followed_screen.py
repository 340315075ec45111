"""The screen of `pipeline demo --followers`: live on a terminal, a plain line every two seconds anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pipeline.followers.operating.watch import WatchedDatabase, WatchedTable, WatchState
from pipeline.terminal import drawing

_PLAIN_EVERY = 2.0
_STYLES = {"following": "green", "copying": "cyan", "waiting": "yellow", "stopped": "bold red"}
Show = Callable[[WatchState, float, float, str], None]
"""A function that takes the state, the seconds passed, their total, and what happens now."""


@contextmanager
def shown(console: Console) -> Iterator[Show]:
    """Yield a function that shows the state; the last one stays on the screen."""
    if not console.is_terminal:
        yield _plain(console)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        yield lambda now, passed, seconds, headline: live.update(_picture(now, passed, seconds, headline), refresh=True)


def has_arrived(now: WatchState) -> bool:
    """Return True if each follower follows, lacks nothing, and has as many rows as the source."""
    if now.reason is not None or not now.databases:
        return False
    source, *followers = now.databases
    return all(each.state == "following" and not each.lag_seqs and _same(each, source) for each in followers)


def _same(each: WatchedDatabase, source: WatchedDatabase) -> bool:
    at_source = {table.table: table for table in source.tables}
    pairs = [(table, at_source.get(table.table)) for table in each.tables]
    return all(expected is not None and table.rows == expected.rows for table, expected in pairs)


def _plain(console: Console) -> Show:
    due, before = 0.0, ""

    def show(now: WatchState, passed: float, seconds: float, headline: str) -> None:
        nonlocal due, before
        if passed < due and headline == before:
            return
        due, before = passed + _PLAIN_EVERY, headline
        states = "  ".join(
            f"{each.name} {drawing.count(sum(table.rows or 0 for table in each.tables), 'row')}{_state(each)}"
            for each in now.databases
        )
        console.print(f"{passed:5.1f} s  {headline}:  {states or now.reason}")

    return show


def _state(each: WatchedDatabase) -> str:
    if each.state in (None, "following"):
        return f" ({each.lag_seqs:,} behind)" if each.lag_seqs else ""
    return f" ({each.state})"


def _picture(now: WatchState, passed: float, seconds: float, headline: str) -> Panel:
    line = Text.assemble(f"{min(passed, seconds):.0f} of {seconds:.0f} s   ", (headline, "bold"))
    body = Group(line, Text(), _states(now), Text(), _rows(now))
    title = Text.assemble(("a tea shop", "bold"), "  →  WAL  →  sequin_events  →  ", ("followers", "bold"))
    return Panel(body, title=title, border_style="cyan", width=100)


def _states(now: WatchState) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("database", "state", "behind", "lag", "changes/s"):
        table.add_column(name, justify="left" if name in ("database", "state") else "right")
    for each in now.databases:
        state = each.state or ""
        table.add_row(
            each.name,
            Text(state, _STYLES.get(state, "")),
            f"{each.lag_seqs:,}" if each.state else "",
            drawing.lasted(each.lag_seconds) if each.state else "",
            "" if each.rate is None else f"{each.rate:,.0f}",
        )
    return table


def _rows(now: WatchState) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("rows of")
    for each in now.databases:
        table.add_column(each.name, justify="right")
    of_table = [{of.table: of for of in each.tables} for each in now.databases]
    for name in of_table[0] if of_table else ():
        table.add_row(name, *(_number(found.get(name)) for found in of_table))
    return table


def _number(found: WatchedTable | None) -> str:
    if found is None or found.rows is None:
        return "?"
    return f"{found.rows:,}"
