"""How numbers, times and tables read on a terminal and in a pipe."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 1000
"""Columns when nobody looks: a pipe gets whole lines."""
_UNITS = ("B", "kB", "MB", "GB", "TB")


def console() -> Console:
    """Standard output, without markup: what is printed may hold brackets."""
    found = Console(markup=False, highlight=False, emoji=False)
    return found if found.is_terminal else Console(markup=False, highlight=False, emoji=False, width=_PIPE_WIDTH)


def table(*columns: str) -> Table:
    """Aligned columns without lines; a heading only where a column has a name."""
    made = Table(
        box=None, show_header=any(columns), header_style="dim", padding=(0, 3, 0, 0), pad_edge=False, show_edge=False
    )
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def count(number: int, noun: str) -> str:
    """So many of a thing."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size(number: int | None) -> str:
    """Bytes for people, in powers of 1000."""
    if number is None:
        return "-"
    power = max(0, min((len(str(abs(number))) - 1) // 3, len(_UNITS) - 1))
    return f"{number / 1000**power:.{1 if power else 0}f} {_UNITS[power]}"


def whole(number: int | None) -> str:
    """A number that may be missing."""
    return "-" if number is None else f"{number:,}"


def lasted(seconds: float | None) -> str:
    """How long a piece of work took: tenths of a second matter until a minute."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else ago(seconds)


def ago(seconds: float) -> str:
    """How long something has lasted, in the two largest units."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")) if number
    ]
    return " ".join(parts[:2]) or "0 s"
