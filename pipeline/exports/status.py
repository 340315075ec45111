"""The status of exports: when the next run is, how the last one ended, how far the lake is behind the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline.config import cron
from pipeline.config.bucket import LakeBucket
from pipeline.config.settings import Config
from pipeline.errors import ExportFailedError
from pipeline.exports import extra, job, ledger, reach, window
from pipeline.exports.ledger import ExportRun, HiddenState, WaitingStates
from pipeline.exports.window import ExportWindow
from pipeline.postgres.connections import Connection


@dataclass(frozen=True)
class ExportStatus:
    """The status of exports. `off`: why no run is scheduled, or None. `exported_seq` is None while no lake exists.

    `problem`: why the next run cannot begin, if this process can find that out.
    `waiting`: the number of current states that lack a few changes: the first one since `waiting_since`, and all are
    complete up to `waiting_seq`. `without_state`: `schema.table` of tables without a key: their changes are exported,
    their current state is not. `hidden`: tables without a current state for another reason.
    """

    schedule: str
    directory: str
    off: str | None = None
    next_run: datetime | None = None
    last_run: ExportRun | None = None
    last_success: datetime | None = None
    exported_seq: int | None = None
    behind_seqs: int | None = None
    problem: str | None = None
    waiting: int = 0
    waiting_since: datetime | None = None
    waiting_seq: int | None = None
    without_state: list[str] = field(default_factory=list)
    hidden: list[HiddenState] = field(default_factory=list)


def read(config: Config, connection: Connection) -> ExportStatus:
    """Return the status now."""
    off = why_off(config)
    seen, problem = _window(config, connection)
    last = ledger.runs(connection, 1)
    done = ledger.runs(connection, 1, "done")
    used = seen.known or not off
    return ExportStatus(
        schedule=config.export_schedule,
        directory=str(config.exports),
        off=off,
        next_run=None if off else window.next_run(config.export_schedule, datetime.now(UTC)),
        last_run=last[0] if last else None,
        last_success=done[0].finished_at if done else None,
        exported_seq=seen.exported_upto if seen.known else None,
        behind_seqs=seen.behind if used and seen.head else None,
        problem=None if off else problem,
        **vars(ledger.waiting_states(connection, config) if used else WaitingStates()),
        without_state=ledger.keyless_tables(connection) if used else [],
        hidden=ledger.hidden_states(connection, config) if used else [],
    )


def lake_problem(config: Config, found: ExportStatus) -> str | None:
    """Return why a request finds that the lake is not in its bucket or cannot be reached; None if it is there."""
    bucket = config.exports
    if not isinstance(bucket, LakeBucket) or found.off or found.exported_seq is None:
        return None
    return reach.why_lost(bucket)


def why_off(config: Config) -> str | None:
    """Return why this server schedules no exports; None if it does."""
    if config.export_schedule == cron.OFF:
        return "PIPELINE_EXPORT_SCHEDULE is off"
    if extra.missing():
        return f"the spark extra is not installed; {extra.REMEDY}"
    return None


def _window(config: Config, connection: Connection) -> tuple[ExportWindow, str | None]:
    found = ExportWindow()
    try:
        found = ledger.window(connection, config)
        extra.require(config.export_formats)
        job.require_lake(config, found)
    except ExportFailedError as error:
        return found, str(error)
    return found, None
