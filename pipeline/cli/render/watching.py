"""Prints a status again and again: in place on a terminal, one after the other anywhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Group
from rich.live import Live
from rich.text import Text

from pipeline.cli.render.status import sections
from pipeline.operate import formatting
from pipeline.operate.status import Status


@contextmanager
def shown(seconds: float, as_json: bool) -> Iterator[Callable[[Status], None]]:
    """Yields a function that prints the next status. `seconds`: between two of them, for who looks at it.

    `as_json`: one document a line, also on a terminal, because a program reads it.
    """
    console = formatting.console()
    if as_json:
        yield lambda now: print(json.dumps(now.to_json()), flush=True)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda now: live.update(_dated(now, seconds), refresh=True)
    else:

        def show(now: Status) -> None:
            console.print(_dated(now, seconds), "")
            console.file.flush()

        yield show


def _dated(now: Status, seconds: float) -> Group:
    when = Text(f"{formatting.moment(datetime.now(UTC))}, every {seconds:g} s until Ctrl-C", "dim")
    return formatting.stacked(when, *sections(now))
