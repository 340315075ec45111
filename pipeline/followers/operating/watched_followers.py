"""Draws the state of source and followers for `pipeline followers watch`: states, then the rows of each table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from pipeline.followers.operating.render import join_remedy, style_state
from pipeline.followers.operating.watch import WatchedDatabase, WatchedTable, WatchState
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

UNKNOWN = "?"


def sections(now: WatchState) -> Iterator[RenderableType]:
    """Yield the parts of this state, which are printed below each other."""
    if now.reason is not None:
        yield EscapedText(now.reason, "yellow")
        return
    columns = ("database", "state", "seq", "behind", "lag", "changes/s", "reason")
    yield drawing.table(columns, map(_line, now.databases))
    names = dict.fromkeys(each.table for database in now.databases for each in database.tables)
    if names:
        yield drawing.table(
            ("rows", *(each.name for each in now.databases)),
            ([name, *(_rows(name, each) for each in now.databases)] for name in names),
        )


def _line(each: WatchedDatabase) -> list[object]:
    of_source = each.state is None
    return [
        each.name,
        "" if each.state is None else style_state(each.state),
        each.seq,
        "" if of_source else drawing.count(each.lag_seqs, "change"),
        "" if of_source else drawing.lasted(each.lag_seconds),
        None if each.rate is None else f"{each.rate:,.0f}",
        "; ".join(part for part in (join_remedy(each.reason, each.remedy), each.rows_reason) if part),
    ]


def _rows(name: str, of: WatchedDatabase) -> str:
    found = next((each for each in of.tables if each.table == name), None)
    return "" if found is None else format_rows(found)


def format_rows(found: WatchedTable) -> str:
    """Return the number of rows, with ~ before an estimate."""
    if found.rows is None:
        return UNKNOWN
    return f"~{drawing.estimate(found.rows):,}" if found.estimated else f"{found.rows:,}"
