"""Print a status again and again: in place on a terminal, one after the other in a pipe or file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import rich.console
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment

from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

T = TypeVar("T")


class FittedLines:
    """Lines that fit into the window: the last line says how many others are left out."""

    def __init__(self, whole: RenderableType) -> None:
        self._whole = whole

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._whole, options.update(height=None), pad=False)
        most = max(2, options.size.height - 1)  # the last line of the window stays free for ^C
        if (left_out := len(lines) - most + 1) > 1:
            note = f"… {left_out:,} more lines, for which this window is too low"
            lines = [*lines[: most - 1], console.render_lines(EscapedText(note, "dim"), options, pad=False)[0]]
        for line in lines:
            yield from line
            yield Segment.line()


@contextmanager
def shown(
    seconds: float, as_json: bool, sections: Callable[[T], Iterable[RenderableType]], to_json: Callable[[T], Any]
) -> Iterator[Callable[[T], None]]:
    """Yield a function that prints the next status. `seconds`: the interval, which is printed, too.

    `as_json`: each status is one line of JSON, even on a terminal. Otherwise a terminal's window cuts a status.
    """

    def dated(now: T) -> Group:
        when = EscapedText(f"{drawing.moment(datetime.now(UTC))}, every {seconds:g} s until Ctrl-C", "dim")
        return drawing.stacked(when, *sections(now))

    console = drawing.console()
    if as_json:
        yield lambda now: print(json.dumps(to_json(now)), flush=True)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda now: live.update(FittedLines(dated(now)), refresh=True)
    else:

        def show(now: T) -> None:
            console.print(dated(now), "")
            console.file.flush()

        yield show
