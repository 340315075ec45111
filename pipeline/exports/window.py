"""What the lake lacks of the log, and when the next run is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipeline.config import cron


@dataclass(frozen=True)
class ExportWindow:
    """Seqs that are not exported yet: `exported_upto` < seq <= `head`.

    `jumped`: so many of them the log has skipped by jumping. `jump`: the first seq behind its last jump, 0 if it has
    none. `known`: whether the folder is a lake already.
    `states_behind`: changes are exported that a table's current state lacks. `iceberg_behind`: Iceberg tables are
    wanted, and lack changes that are exported. `holder`: which process exports to the lake now.
    """

    head: int = 0
    exported_upto: int = 0
    jumped: int = 0
    jump: int = 0
    known: bool = False
    states_behind: bool = False
    iceberg_behind: bool = False
    holder: str | None = None

    @property
    def behind(self) -> int:
        """Seqs from the last exported to the newest; an upper bound of events, since there are gaps."""
        return max(0, self.head - self.exported_upto - self.jumped)

    @property
    def anything_new(self) -> bool:
        """Whether a run would export anything."""
        return self.behind > 0 or self.states_behind or self.iceberg_behind


def next_run(schedule: str, now: datetime) -> datetime | None:
    """The schedule's next time after `now`; None when it is off."""
    if schedule == cron.OFF:
        return None
    found: datetime | None = cron.parse(schedule).get_next_fire_time(None, now)
    return found
