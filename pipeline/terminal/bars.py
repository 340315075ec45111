"""Progress bars, whose texts are escaped as all that commands print."""

from __future__ import annotations

import rich.progress
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TimeRemainingColumn

from pipeline.terminal.drawing import EscapedConsole, EscapedText


class TextColumn(rich.progress.TextColumn):
    """A part of a bar with text."""

    def render(self, task: Task) -> EscapedText:
        """Return what is shown now."""
        return EscapedText(self.text_format.format(task=task))


def beside_output() -> Progress:
    """Return a bar that a terminal shows on standard error: standard output stays for the result."""
    console = EscapedConsole(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
