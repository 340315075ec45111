"""Progress bars, whose texts are escaped like all output of commands."""

from __future__ import annotations

import rich.progress
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TimeRemainingColumn

from pipeline.terminal.drawing import EscapedConsole, EscapedText


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
