"""Print a status again and again: in place on a terminal, one after the other in a pipe or file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from rich.console import Group, RenderableType
from rich.live import Live

from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

T = TypeVar("T")


@contextmanager
def shown(
    seconds: float, as_json: bool, sections: Callable[[T], Iterable[RenderableType]], to_json: Callable[[T], Any]
) -> Iterator[Callable[[T], None]]:
    """Yield a function that prints the next status. `seconds`: the interval, which is printed, too.

    `as_json`: each status is one line of JSON, even on a terminal.
    """

    def dated(now: T) -> Group:
        when = EscapedText(f"{drawing.moment(datetime.now(UTC))}, every {seconds:g} s until Ctrl-C", "dim")
        return drawing.stacked(when, *sections(now))

    console = drawing.console()
    if as_json:
        yield lambda now: print(json.dumps(to_json(now)), flush=True)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda now: live.update(dated(now), refresh=True)
    else:

        def show(now: T) -> None:
            console.print(dated(now), "")
            console.file.flush()

        yield show
