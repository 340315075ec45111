"""Progress bars, whose texts are escaped like all output of commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import rich.progress
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TimeRemainingColumn

from pipeline.printable import say
from pipeline.terminal.drawing import EscapedConsole, EscapedText

LINE_SECONDS = 5.0
"""The fewest seconds before and between lines that say what a command waits for."""


class TextColumn(rich.progress.TextColumn):
    """A column of a progress bar with escaped text."""

    def render(self, task: Task) -> EscapedText:
        """Return the text to show now."""
        return EscapedText(self.text_format.format(task=task))


def beside_output() -> Progress:
    """Return a progress bar on standard error, shown only on a terminal; standard output is for the result."""
    console = EscapedConsole(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def waiting() -> Iterator[Callable[[str], None]]:
    """Yield a function that says on standard error what a command waits for.

    A terminal shows the newest text, and nothing of it at the end. Elsewhere a text that has changed is a line, one in
    LINE_SECONDS at most: a short wait prints nothing.
    """
    console = EscapedConsole(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Progress(TextColumn("{task.description}"), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text: bar.update(task, description=text)


def _lines() -> Callable[[str], None]:
    before, due = "", time.monotonic() + LINE_SECONDS

    def tell(text: str) -> None:
        nonlocal before, due
        if text != before and time.monotonic() >= due:
            before, due = text, time.monotonic() + LINE_SECONDS
            say(text, file=sys.stderr)

    return tell
