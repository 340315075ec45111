"""Lets a stopped follower skip the transaction at which it stopped."""

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
    """A transaction that a follower has skipped: its seqs, and the tables that it changes at the source."""

    follower: str
    first_seq: int
    last_seq: int
    commit_lsn: lsn.Shown | None
    events: int
    tables: list[str] = field(default_factory=list)


def skip(config: Config, pipeline: Connection, name: str, seq: int) -> SkippedTransaction:
    """Skip the transaction of this seq. The follower must have stopped at this transaction.

    `pipeline_follower.skipped` records the transaction, whose changes the follower's tables will lack. Raises
    UnknownFollowerError, FollowerError with the reason and the remedy, and DatabaseUnavailableError if the follower's
    database does not answer.
    """
    status.show(pipeline, name)
    found = registry.find(pipeline, name)[0]
    what = connecting.label(name)
    if found.wanted == "paused":
        raise FollowerError(
            f"{what} is paused, so the reason why it stopped is unknown; run `pipeline followers resume {name}` first"
        )
    if found.state != "stopped":
        raise FollowerError(f"{what} is {found.state}; only a stopped follower can skip the transaction that stops it")
    with connecting.connect(name, found.dsn, program="pipeline followers") as there:
        here = position.require_existing(there, found.source_id, name)
        left_out = skipping.find_next(pipeline, here, EventsTable.parse(config.events_table))
        _require_next(found, left_out, here.seq, seq)
        assert left_out is not None  # noqa: S101  else it was refused
        try:
            after = skipping.skip(there, here, left_out, found.reason or "")
        except ApplierOvertakenError as error:
            raise FollowerError(f"{what} has just continued by itself; nothing was skipped") from error
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
            f"{what} is at seq {here}, and the log has no later transaction to skip; "
            f"`pipeline followers show {registration.name}` shows why the follower stopped"
        )
    if not next_one.first_seq <= seq <= next_one.last_seq:
        where = f"seq {next_one.first_seq}" + (
            f" to {next_one.last_seq}" if next_one.last_seq > next_one.first_seq else ""
        )
        raise FollowerError(
            f"{what} has stopped before the transaction of {where}, to which seq {seq} does not belong; "
            f"run `pipeline followers skip-transaction {registration.name} {next_one.first_seq}`"
        )
