"""A status that is shown again and again fits into the window of the terminal."""

from __future__ import annotations

import io

from pipeline.terminal import watching
from pipeline.terminal.drawing import EscapedConsole, EscapedText, stacked


def drawn(lines: int, height: int) -> list[str]:
    """The lines of a window with 20 columns."""
    text = EscapedText("line 1")
    for number in range(2, lines + 1):
        text.line(f"line {number}")
    file = io.StringIO()
    console = EscapedConsole(file=file, width=20, height=height, force_terminal=True, color_system=None)
    console.print(watching.FittedLines(stacked(text)), end="")
    return file.getvalue().splitlines()


def test_lines_that_fit_are_shown() -> None:
    assert drawn(4, 5) == ["line 1", "line 2", "line 3", "line 4"]


def test_lines_that_do_not_fit_are_counted() -> None:
    assert drawn(40, 6) == ["line 1", "line 2", "line 3", "line 4", "… 36 more lines, for"]


def test_a_window_of_two_lines_has_one_of_the_status() -> None:
    assert drawn(3, 1) == ["line 1", "… 2 more lines, for "]
