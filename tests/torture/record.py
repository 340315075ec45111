"""The runs in docs/internals/torture.md: one row a run; the next run continues after the last seed of its version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.torture.plan.deeds_shapes import OUTSIDE, SHAPE_DEEDS
from tests.torture.plan.plan import ADOPTING, Ways
from tests.torture.seeds import Outcome

FILE = Path(__file__).parents[2] / "docs" / "internals" / "torture.md"
COLUMNS = ("date", "Postgres", "minutes", "seeds", "transactions", "changes", "DDL", "faults that hit", "failures")
ENOUGH: Mapping[Ways, float] = {"at_once": 0.5, "mixed": 0.2}
"""Of its changes, this many must have been written at once for a seed to say something of these ways."""
DDL = frozenset((*SHAPE_DEEDS, *OUTSIDE))
_ROW = re.compile(r"^\| (?P<date>[\d-]+) \| (?P<major>\d+)[.\d]* \| [\d.]+ \| (?P<first>\d+) to (?P<last>\d+) \|")


@dataclass
class Run:
    """What a run has done so far, seed by seed."""

    version: str
    first: int
    ways: Ways = "default"
    seeds: int = 0
    counted: int = 0
    """Of those, the seeds with ENOUGH changes written at once, or with any adopted; what follows is of all."""
    at_once: int = 0
    """Changes."""
    seconds: float = 0.0
    transactions: int = 0
    changes: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    adopted: list[int] = field(default_factory=list)
    """Rows of each seed that became partitions without being moved."""
    partitions: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count a seed in."""
        self.seeds += 1
        self.counted += self.counts(outcome)
        self.at_once += outcome.ways["at_once"]
        self.adopted.append(outcome.ways["adopt"])
        self.partitions += outcome.partitions
        self.seconds += outcome.seconds
        self.transactions += outcome.transactions
        self.changes += outcome.changes
        self.hits += outcome.hits
        self.deeds += outcome.deeds
        self.kinds += outcome.kinds
        if outcome.failure is not None:
            self.failed.append(outcome.seed)

    def counts(self, outcome: Outcome) -> bool:
        """True if enough of its changes took the path under test."""
        if self.ways in ADOPTING and not outcome.ways["adopt"]:
            return False
        return outcome.share_at_once >= ENOUGH.get(self.ways, 0.0)

    @property
    def ddl(self) -> Counter[str]:
        """How often each kind of DDL was done; what was refused is not in it."""
        return Counter({name: count for name, count in self.deeds.items() if name in DDL})

    def row(self, minutes: float, day: str) -> str:
        """Return the run as a line of the table. The lines that it prints say which faults hit."""
        seeds = f"{self.first} to {self.first + self.seeds - 1}"
        failures = "none" if not self.failed else f"{len(self.failed)}: seed {', '.join(map(str, self.failed))}"
        cells = (day, self.version, f"{minutes:.0f}", seeds, f"{self.transactions:,}", f"{self.changes:,}")
        ddl = f"{self.ddl.total():,} of {len(self.ddl)} kinds"
        return f"| {' | '.join((*cells, ddl, f'{self.hits.total():,}', failures))} |"


def in_short(hits: Mapping[str, int]) -> str:
    """`crash (both 21, log 20), cut (all 20, …)`: kinds that begin with one word together."""
    groups: dict[str, list[str]] = {}
    for kind in sorted(hits):
        verb, _, what = kind.partition(" ")
        groups.setdefault(verb, []).append(f"{what} {hits[kind]}".strip())
    parts = (
        f"{verb} {found[0]}" if len(found) == 1 else f"{verb} ({', '.join(found)})" for verb, found in groups.items()
    )
    return ", ".join(parts) or "none"


def next_seed(major: int, file: Path = FILE) -> int:
    """The one after the last that this version's runs have done; 1 before the first, or without the file."""
    text = file.read_text() if file.exists() else ""
    rows = (_ROW.match(line) for line in text.splitlines())
    return max((int(row["last"]) for row in rows if row and int(row["major"]) == major), default=0) + 1


def append(run: Run, minutes: float, file: Path = FILE) -> None:
    """Add the run's row; the table is the last thing in the file."""
    text = file.read_text().rstrip("\n")
    file.write_text(f"{text}\n{run.row(minutes, datetime.now(UTC).date().isoformat())}\n")
