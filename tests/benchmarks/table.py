"""The figures of all parts, and a markdown table of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_VERDICT = {None: "", True: ", reached", False: ", not reached"}
_UNJUDGED = ", not judged at this scale"


Cells = tuple[str, str, str, str, str]
"""Part, figure, median, min to max, goal."""


@dataclass(frozen=True)
class Row:
    """One figure: its median over the runs, their spread, and what it should be."""

    part: str
    figure: str
    middle: str
    spread: str = ""
    goal: str = ""
    reached: bool | None = None


class Table:
    """Rows in the order they were measured. `judged`: whether the sizes are those that the goals are meant for."""

    def __init__(self, *, judged: bool = True) -> None:
        self._judged = judged
        self._rows: list[Row] = []

    def add(
        self,
        part: str,
        figure: str,
        values: Sequence[float],
        pattern: str = "{:,.0f}",
        *,
        least: float | None = None,
        most: float | None = None,
        below: float | None = None,
    ) -> None:
        """The median of `values`, shown by `pattern`, with a goal for it if there is one."""
        middle = median(values)
        spread = f"{pattern.format(min(values))} to {pattern.format(max(values))}" if len(values) > 1 else ""
        goal, reached = "", None
        if least is not None:
            goal, reached = f"≥ {least:g}", middle >= least
        elif most is not None:
            goal, reached = f"≤ {most:g}", middle <= most
        elif below is not None:  # a limit holds for every run
            goal, reached = f"< {below:g}", max(values) < below
        self._rows.append(Row(part, figure, pattern.format(middle), spread, goal, reached))

    def note(self, part: str, figure: str, text: str) -> None:
        """A figure that is no number, or is missing, and why."""
        self._rows.append(Row(part, figure, text))

    def cells(self, part: str = "") -> list[Cells]:
        """What each row shows, of one part or of all; parts in the order in which they were begun."""
        order = list(dict.fromkeys(row.part for row in self._rows))
        return [
            (row.part, row.figure, row.middle, row.spread, self._goal(row))
            for row in sorted(self._rows, key=lambda row: order.index(row.part))
            if part in ("", row.part)
        ]

    def _goal(self, row: Row) -> str:
        return row.goal + (_VERDICT[row.reached] if self._judged or row.reached is None else _UNJUDGED)


def markdown(rows: Sequence[Cells]) -> str:
    """Aligned, so that it can be read as it is."""
    lines = [("part", "figure", "median", "min to max", "goal"), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "| " + " | ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = (
        "|"
        + "|".join(f"{'-' * (width + 1)}{':' if number in (2, 3) else '-'}" for number, width in enumerate(widths))
        + "|"
    )
    return "\n".join([shown[0], rule, *shown[1:]])
