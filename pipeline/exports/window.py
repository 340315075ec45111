"""The events that the lake lacks, and the time of the next run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipeline.config import cron


@dataclass(frozen=True)
class ExportWindow:
    """Seqs that are not exported yet: `exported_upto` < seq <= `head`.

    `jumped`: the number of these seqs that the log skipped when it jumped. `jump`: the first seq after its last jump, 0
    if it never jumped. `known`: True if the folder is a lake already. `states_behind`: True if a table's current state
    lacks exported changes. `iceberg_behind`: True if Iceberg tables are configured and lack exported changes. `holder`:
    which process exports to the lake now.
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
        """The number of seqs after the last exported one: at most this many events, since seqs have gaps."""
        return max(0, self.head - self.exported_upto - self.jumped)

    @property
    def anything_new(self) -> bool:
        """True if a run would export anything."""
        return self.behind > 0 or self.states_behind or self.iceberg_behind


def next_run(schedule: str, now: datetime) -> datetime | None:
    """Return the schedule's next time after `now`; None if it is off."""
    if schedule == cron.OFF:
        return None
    found: datetime | None = cron.parse(schedule).get_next_fire_time(None, now)
    return found
