"""Numbers, times and tables as commands print them on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import rich.console
import rich.text
from rich.console import Group, RenderableType
from rich.table import Table

from pipeline.printable import count as count
from pipeline.printable import escaped
from pipeline.wal import lsn

_PIPE_WIDTH = 1000
"""The width in characters if the output is not a terminal: a pipe gets whole lines."""
_UNITS = ("B", "kB", "MB", "GB", "TB")
LEVEL_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


class EscapedConsole(rich.console.Console):
    """A console that escapes every string and interprets no markup, since users choose the names of tables."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """Return a string escaped. Rich calls this for every printed string and every cell of a table."""
        return super().render_str(escaped(text), **options)


class EscapedText(rich.text.Text):
    """Styled text without control characters (`escaped`); new lines are added only by `line`."""

    def __init__(self, text: str = "", style: str = "", **options: Any) -> None:
        super().__init__(escaped(text), style, **options)

    def line(self, text: str, style: str = "") -> EscapedText:
        """Add a line."""
        self.append("\n").append(escaped(text), style)
        return self


class PipeConsole(EscapedConsole):
    """Standard output that is no terminal: columns stay aligned, lines are never folded, and end without blanks."""

    def __init__(self) -> None:
        super().__init__(width=_PIPE_WIDTH)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as on a terminal; blanks that only fill the last column of a table are left out."""
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))


def console() -> EscapedConsole:
    """Return a console for standard output."""
    found = EscapedConsole()
    return found if found.is_terminal else PipeConsole()


def show(*sections: RenderableType | None) -> None:
    """Print the sections that are not None, separated by empty lines."""
    console().print(stacked(*sections))


def stacked(*sections: RenderableType | None) -> Group:
    """Return the sections that are not None, separated by empty lines."""
    there = [section for section in sections if section is not None]
    return Group(*[part for section in there for part in ("", section)][1:])


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return aligned columns without lines, each value formatted by `cell`; a header only if a column has a name."""
    made = Table(
        box=None, show_header=any(columns), header_style="dim", padding=(0, 3, 0, 0), pad_edge=False, show_edge=False
    )
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(cell, row))
    return made


def facts(rows: Iterable[tuple[object, object, object]]) -> Table:
    """Return rows of a label, a value and a note; labels and notes are dim unless they have a style."""
    return table(("", "", ""), ((dim(label), value, dim(note)) for label, value, note in rows))


def dim(value: object) -> EscapedText:
    """Return the value in a dim style, for text that matters less; an EscapedText keeps its own style."""
    return value if isinstance(value, EscapedText) else EscapedText(str(value), "dim")


def cell(value: object) -> str | rich.text.Text:
    """Return a cell of a table: None as a dash, a time to the second, any other value as its text."""
    if isinstance(value, str | rich.text.Text):
        return value
    if isinstance(value, datetime):
        return moment(value)
    return "-" if value is None else str(value)


def rate(number: float, noun: str = "row") -> str:
    """Return a number a second with its noun, in the plural unless it is 1."""
    return f"{count(round(number), noun)}/s"


def estimate(number: int) -> int:
    """Return an estimated number with two significant digits, because Postgres does not know more of them."""
    return round(number, 2 - len(str(abs(number))))


def size(number: int | None) -> str:
    """Return a number of bytes in the largest fitting unit, in powers of 1000."""
    if number is None:
        return "-"
    power = max(0, min((len(str(abs(number))) - 1) // 3, len(_UNITS) - 1))
    return f"{number / 1000**power:.{1 if power else 0}f} {_UNITS[power]}"


def whole(number: int | None) -> str:
    """Return an integer with separators of thousands; None as a dash."""
    return "-" if number is None else f"{number:,}"


def position(value: int | None) -> str:
    """Return an LSN as Postgres prints it; None as a dash."""
    return "-" if value is None else lsn.show(value)


def moment(when: datetime) -> str:
    """Return a time to the second, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def lasted(seconds: float | None) -> str:
    """Return a duration, below a minute with tenths of a second; None as a dash."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else ago(seconds)


def since(when: datetime) -> str:
    """Return the time since `when`, in its two largest units."""
    return ago((datetime.now(UTC) - when).total_seconds())


def ago(seconds: float) -> str:
    """Return a number of seconds in its two largest units, from days to seconds."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")) if number
    ]
    return " ".join(parts[:2]) or "0 s"
