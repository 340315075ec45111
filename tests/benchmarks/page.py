"""Writes the tables of docs/internals/benchmarks.md that are between marks; people write the rest of the page.

A mark names the parts that its table shows: `<!-- figures: bulk small -->`; the table ends at `<!-- end -->`. Rows of
parts that were not run stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.table import Cells, markdown

_TABLE = re.compile(r"(<!-- figures: ([a-z -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(page: Path, settings: str, measured: Mapping[str, Sequence[Cells]]) -> None:
    """Replace the rows of the parts that were measured; `settings` stand above each table that changes."""
    page.write_text(_TABLE.sub(lambda found: _replaced(found, settings, measured), page.read_text()))


def _replaced(found: re.Match[str], settings: str, measured: Mapping[str, Sequence[Cells]]) -> str:
    parts = found[2].split()
    if not any(part in measured for part in parts):
        return found[0]
    before = rows(found[0])
    now = [row for part in parts for row in measured.get(part, [row for row in before if row[0] == part])]
    return f"{found[1]}{settings}\n\n{markdown(now)}\n{found[3]}"


def rows(text: str) -> list[Cells]:
    """Return the rows of all tables of five columns in this text."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 5:
            found.append((cells[0], cells[1], cells[2], cells[3], cells[4]))
    return found
