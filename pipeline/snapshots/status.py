"""Show, pause, resume and cancel backfills, in the terminal and over REST; the server's role `snapshot` reads them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import BackfillError, UnknownBackfillError
from pipeline.postgres import queries, role_locks
from pipeline.postgres.connections import Connection
from pipeline.snapshots import backfills
from pipeline.snapshots.backfills import StoredBackfill

ENDED = ("complete", "failed", "cancelled")
ROLE = "snapshot"
NO_SERVER = "no server runs that would read it: start `pipeline serve`"


@dataclass(frozen=True)
class BackfillStatus:
    """A backfill, and how far it is.

    `rows`: events added; for the other `rows_read`, the log has the same values or newer ones.

    `rows_per_second` since it began, and `seconds_left` at that rate: only while it is reading, and if known.
    `rows_estimated`: rows of the whole table, with or without a condition.
    """

    id: int
    table: str
    kind: str
    condition: str | None
    state: str
    reason: str | None
    ranges_done: int
    ranges_all: int
    rows_read: int
    rows: int
    rows_estimated: int | None
    rows_per_second: float | None
    seconds_left: float | None
    events_table: str | None
    first_seq: int | None
    last_seq: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> bool:
        """True if the backfill is complete, failed or cancelled."""
        return self.state in ENDED


def shown(backfill: StoredBackfill, now: datetime) -> BackfillStatus:
    """Return the status of a backfill. `now`: by the clock of the pipeline database, as the stored times."""
    same = {name: getattr(backfill, name) for name in BackfillStatus.__annotations__ if hasattr(backfill, name)}
    rate, left = _pace(backfill, now)
    return BackfillStatus(**{**same, "rows": backfill.rows_added}, rows_per_second=rate, seconds_left=left)


def _pace(backfill: StoredBackfill, now: datetime) -> tuple[float | None, float | None]:
    """Return rows a second and seconds left, if the backfill is reading."""
    if backfill.state != "reading" or backfill.started_at is None or not backfill.ranges_done:
        return None, None
    seconds = max((now - backfill.started_at).total_seconds(), 0.001)
    left = max(backfill.ranges_all - backfill.ranges_done, 0) * seconds / backfill.ranges_done
    return round(backfill.rows_read / seconds, 1), round(left, 1)


def list_backfills(config: Config, pipeline: Connection, most: int = 100) -> list[BackfillStatus]:
    """Return at most `most` backfills, the newest first; none if the source is not known yet."""
    stored = sources.find(pipeline, config.source_id)
    return _shown(pipeline, backfills.list_newest(pipeline, stored.id, most)) if stored else []


def under_way(pipeline: Connection, stored: ReplicationSource) -> list[BackfillStatus]:
    """Return the backfills that have not ended, the oldest first."""
    return _shown(pipeline, backfills.list_open(pipeline, stored.id))


def show(config: Config, pipeline: Connection, number: int) -> BackfillStatus:
    """Return one backfill. Raises UnknownBackfillError."""
    return _shown(pipeline, [_find(config, pipeline, number)])[0]


def pause(config: Config, pipeline: Connection, number: int) -> BackfillStatus:
    """Pause a backfill; ranges that are being read are finished."""
    return _change(config, pipeline, number, "paused", lambda: backfills.pause(pipeline, number, paused=True))


def resume(config: Config, pipeline: Connection, number: int) -> BackfillStatus:
    """Resume a paused backfill."""
    return _change(config, pipeline, number, "resumed", lambda: backfills.pause(pipeline, number, paused=False))


def cancel(config: Config, pipeline: Connection, number: int) -> BackfillStatus:
    """End a backfill; the events that it has added stay."""
    return _change(config, pipeline, number, "cancelled", lambda: backfills.end(pipeline, number, "cancelled"))


def is_served(pipeline: Connection) -> bool:
    """True if a server reads tables, or has just started and will."""
    role = role_locks.states(pipeline).get(ROLE)
    return (role is not None and role.held) or role_locks.server_starts(pipeline, ROLE)


def _change(config: Config, pipeline: Connection, number: int, done: str, change: Callable[[], bool]) -> BackfillStatus:
    with pipeline.transaction():
        _find(config, pipeline, number)
        changed = change()
        found = show(config, pipeline, number)
    if not changed:
        may = "only one that is paused can be" if done == "resumed" else "it cannot be"
        raise BackfillError(f"backfill {number} of {found.table} is {found.state}; {may} {done}")
    return found


def _find(config: Config, pipeline: Connection, number: int) -> StoredBackfill:
    stored = sources.find(pipeline, config.source_id)
    found = backfills.find(pipeline, number)
    if found is None or stored is None or found.source_id != stored.id:
        raise UnknownBackfillError(
            f"there is no backfill {number}; `pipeline backfill list` and GET /v1/backfills show all"
        )
    return found


def _shown(pipeline: Connection, found: Collection[StoredBackfill]) -> list[BackfillStatus]:
    if not found:
        return []
    now: datetime = queries.value(pipeline, "select pg_catalog.clock_timestamp()")
    return [shown(each, now) for each in found]
