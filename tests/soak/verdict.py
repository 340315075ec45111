"""What grew in the second half of a run, and by how much it may grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.soak.clients import ROWS
from tests.soak.samples import Sample

MOST = 0.05
"""The share by which a process or a table may grow in the second half."""
LEAST_MEMORY, LEAST_SIZE, LEAST_COUNT = 1_000_000, 65_536, 3.0
"""Less is noise: bytes of a process, bytes of a table (eight pages), and files or threads."""
LEAST_OF_SESSION = 8 * 2**20
"""Bytes of a session of Postgres: the default of its `temp_buffers`, which fill one by one."""
LOG = ("public.sequin_events", "public.wal_events")
"""The log, which retention limits, and its staging, which is as large as what waits."""
LIMITS: Mapping[str, Callable[[float], float]] = {
    "pipeline.lag_samples": lambda minutes: 1.1 * min(60, minutes) * 60 / 5,
    "pipeline.wal_written": lambda minutes: 1.1 * (min(10, minutes) * 60 + max(0, minutes - 10) * 60 / 20 * 2),
    "pipeline.export_runs": lambda minutes: 2 * minutes,
    "pipeline.exports": lambda minutes: 4 * minutes,
    "pipeline.export_files": lambda minutes: 40 * minutes,
    "pipeline.export_states": lambda minutes: 4 * minutes,
    "pipeline.export_replaced": lambda minutes: 40 * minutes,
    "pipeline.export_compactions": lambda minutes: minutes,
    "pipeline.known_rows": lambda _: 2 * ROWS,
}
"""The most rows of each table that is kept for an hour or longer, after a run of so many minutes.

`known_rows` has rows whose last event was dropped, and deleted rows until the event of the deletion is dropped.
"""


@dataclass(frozen=True)
class Growth:
    """How a figure changed in the second half. `begin`, `end`: medians of its first and its last third."""

    name: str
    begin: float
    end: float
    minutes: float
    least: float

    @property
    def share(self) -> float:
        """The growth as a share of the beginning."""
        return (self.end - self.begin) / self.begin if self.begin else 0.0

    @property
    def per_hour(self) -> float:
        """The slope."""
        return (self.end - self.begin) / self.minutes * 60

    @property
    def too_much(self) -> bool:
        return self.end - self.begin > max(self.least, MOST * self.begin)


def second_half(samples: Sequence[Sample], end: float) -> list[Sample]:
    """Return the samples of the second half of a run that took so many seconds."""
    return [sample for sample in samples if end / 2 <= sample.at <= end]


def growths(half: Sequence[Sample]) -> list[Growth]:
    """Return the growth of all processes that lived through the half, and of all tables that it judges.

    An export is a job, which grows until it ends.
    """
    lived = set.intersection(*(set(sample.processes) for sample in half))
    found = []
    for name in sorted(name for name in lived if not name.startswith("export")):
        of_one = [sample.processes[name] for sample in half]
        memory = [each.memory for each in of_one]
        if name.startswith("Postgres"):
            found.append(_growth(f"session in {name}", half, memory, LEAST_OF_SESSION))
        else:
            found.append(_growth(f"memory of {name}", half, memory, LEAST_MEMORY))
            found.append(_growth(f"open files of {name}", half, [each.files for each in of_one], LEAST_COUNT))
            found.append(_growth(f"threads of {name}", half, [each.threads for each in of_one], LEAST_COUNT))
    for name in sorted(half[-1].tables):
        if name not in LOG and name not in LIMITS:
            sizes = [sample.tables[name].size if name in sample.tables else 0 for sample in half]
            found.append(_growth(f"table {name}", half, sizes, LEAST_SIZE))
    return found


def _growth(name: str, half: Sequence[Sample], values: Sequence[float], least: float) -> Growth:
    third = max(1, len(values) // 3)
    minutes = (half[-1].at - half[0].at) * 2 / 3 / 60  # between the middles of both thirds
    return Growth(name, median(values[:third]), median(values[-third:]), max(minutes, 0.01), least)


def findings(half: Sequence[Sample], rows: Mapping[str, int], minutes: float) -> list[str]:
    """Return one sentence for each figure that grew too much. `rows`: of the tables in LIMITS, at the end."""
    found = [
        f"{each.name} grew by {each.share:.0%} in the second half, from {each.begin:,.0f} to {each.end:,.0f}"
        for each in growths(half)
        if each.too_much
    ]
    limits = {name: limit(minutes) for name, limit in LIMITS.items()}
    return found + [
        f"table {name} has {count:,} rows, and {limits[name]:,.0f} is the most that {minutes:.0f} minutes explain"
        for name, count in rows.items()
        if count > limits[name] + 20
    ]
