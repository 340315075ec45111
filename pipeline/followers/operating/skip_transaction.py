"""Lets a stopped follower skip the one transaction at which it stopped."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.config.settings import Config
from pipeline.errors import ApplierOvertakenError, FollowerError
from pipeline.followers import connecting, registry
from pipeline.followers.applying import position, skipping
from pipeline.followers.applying.skipping import NextTransaction
from pipeline.followers.operating import status
from pipeline.followers.registry import ApplierReport, RegisteredFollower
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn

SKIPPED = "the follower continues after a transaction that a user has skipped"


@dataclass(frozen=True)
class SkippedTransaction:
    """A transaction that the follower lacks: its seqs, and the tables that it would have changed."""

    follower: str
    first_seq: int
    last_seq: int
    commit_lsn: lsn.Shown | None
    events: int
    tables: list[str] = field(default_factory=list)


def skip(config: Config, pipeline: Connection, name: str, seq: int) -> SkippedTransaction:
    """Move the follower past the transaction of this seq, at which it must have stopped.

    The follower records the transaction in `pipeline_follower.skipped`; its tables lack the changes. Raises
    UnknownFollowerError, FollowerError with the reason for a refusal and the remedy, and DatabaseUnavailableError if
    its database does not answer.
    """
    status.show(pipeline, name)
    found = registry.find(pipeline, name)[0]
    what = connecting.label(name)
    if found.wanted == "paused":
        raise FollowerError(
            f"{what} is paused, so it is not known what is in its way; `pipeline followers resume {name}`"
        )
    if found.state != "stopped":
        raise FollowerError(f"{what} is {found.state}, not stopped: only what it has stopped before can be skipped")
    with connecting.connect(name, found.dsn, program="pipeline followers") as there:
        here = position.require_existing(there, found.source_id, name)
        left_out = skipping.find_next(pipeline, here, EventsTable.parse(config.events_table))
        _require_next(found, left_out, here.seq, seq)
        assert left_out is not None  # noqa: S101  else it was refused
        try:
            after = skipping.skip(there, here, left_out, found.reason or "")
        except ApplierOvertakenError as error:
            raise FollowerError(f"{what} has just gone on by itself; nothing was skipped") from error
    reached = registry.RegisteredPosition(after.seq, after.commit_lsn, after.committed_at)
    registry.store_report(pipeline, found.id, ApplierReport("waiting", SKIPPED, None, reached))
    return SkippedTransaction(
        name, left_out.first_seq, left_out.last_seq, left_out.commit_lsn, left_out.events, sorted(left_out.tables)
    )


def _require_next(registration: RegisteredFollower, next_one: NextTransaction | None, here: int, seq: int) -> None:
    """Raise FollowerError if the seq does not belong to the next transaction."""
    what = connecting.label(registration.name)
    if next_one is None:
        raise FollowerError(
            f"{what} is at seq {here}, and the log has no transaction that comes next: nothing can be skipped; "
            f"`pipeline followers show {registration.name}` says what is in its way"
        )
    if not next_one.first_seq <= seq <= next_one.last_seq:
        where = f"seq {next_one.first_seq}" + (
            f" to {next_one.last_seq}" if next_one.last_seq > next_one.first_seq else ""
        )
        raise FollowerError(
            f"{what} has stopped before the transaction of {where}, and seq {seq} is not of it; "
            f"name that one: `pipeline followers skip-transaction {registration.name} {next_one.first_seq}`"
        )
