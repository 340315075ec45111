"""Writes docs/soak.md's figures and drawing from the result of a run: `python -m tests.soak.page RESULT`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks import plot
from tests.fixtures.generated import DOCS, GeneratedPart
from tests.soak.samples import Sample, read
from tests.soak.verdict import LIMITS, LOG

PART = GeneratedPart(DOCS / "soak.md", "figures")


def drawing(samples: Sequence[Sample]) -> str:
    """Return an SVG of memory and of the size of tables over time."""
    megabytes: dict[str, list[tuple[float, float]]] = {
        "the server's processes": [],
        "their sessions in Postgres": [],
        "the log": [],
        "all other tables": [],
    }
    for sample in samples:
        sessions = sum(one.memory for name, one in sample.processes.items() if name.startswith("Postgres"))
        kept = [one.memory for name, one in sample.processes.items() if not name.startswith(("Postgres", "export"))]
        log = sum(one.size for name, one in sample.tables.items() if name in LOG)
        tables = sum(one.size for one in sample.tables.values()) - log
        for points, value in zip(megabytes.values(), (sum(kept), sessions, log, tables), strict=True):
            points.append((sample.at / 60, value / 1e6))
    return plot.lines("Memory and tables under constant load", megabytes, "minutes", "MB")


def body(result: Mapping[str, Any]) -> str:
    """Return the part of the page that holds figures."""
    grown = [[name, *shown] for name, *shown in result["growths"]]
    rows = [
        [f"`{name}`", f"{count:,}", f"{LIMITS[name](result['server_minutes']):,.0f}"]
        for name, count in result["rows"].items()
    ]
    return "\n\n".join(
        (
            f"A run of {result['minutes']:g} minutes on {result['date']}, on {result['machine']}.",
            "\n".join(f"- {line}" for line in result["lines"]),
            "Largest growth of a process and of a table in the second half:",
            _table(("what", "begin", "end", "growth", "an hour"), grown),
            "Rows of tables that are kept for an hour or longer:",
            _table(("table", "rows at the end", "limit"), rows),
            "\n".join(f"- **Finding:** {finding}." for finding in result["findings"]) or "The run found nothing wrong.",
        )
    )


def write(file: Path) -> None:
    """Write the part of the page, and its drawing, from the result of a run and the samples beside it."""
    PART.write(body(json.loads(file.read_text())))
    (DOCS / "soak.svg").write_text(drawing(read(file.with_name("samples.jsonl"))))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
