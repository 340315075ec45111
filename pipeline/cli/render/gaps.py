"""What the log lacks of tables, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pipeline.capture.source.captured_tables import Gap
from pipeline.terminal import drawing
from pipeline.terminal.drawing import Text

FEW = 5
"""Gaps that the status shows of each kind; `pipeline sources list` shows them all."""


def table(found: Sequence[Gap], most: int | None = None) -> Table:
    """One line for each gap; beyond `most` of a kind, one that says how many more there are."""
    rows: list[tuple[Text, str]] = []
    for kind in ("changes", "rows"):
        of_kind = [gap for gap in found if gap.what == kind]
        rows += [(Text(gap.table, "yellow"), _missing(gap)) for gap in of_kind[:most]]
        if most is not None and len(of_kind) > most:
            more = drawing.count(len(of_kind) - most, "more table")
            rows.append((Text(f"and {more}", "yellow"), "`pipeline sources list` shows them"))
    return drawing.table(("not in the log", "what"), rows)


def _missing(gap: Gap) -> str:
    until = f"{drawing.position(gap.until_lsn)} ({drawing.cell(gap.until)})"
    if gap.what == "rows":
        return f"rows from before {until}, when it was published: it had some, or that could not be read"
    since = f"changes after {drawing.position(gap.from_lsn)} ({drawing.cell(gap.since)})"
    return f"{since}, when it was taken out of the publication" + ("" if gap.until is None else f", up to {until}")
