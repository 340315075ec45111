"""Ends a follower for good at the source's last commit, which completes a migration."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import source_rows
from pipeline.config.settings import Config
from pipeline.errors import FollowerError
from pipeline.followers import connecting, registry
from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import checks
from pipeline.followers.copying.checks import UnvalidatedCheck
from pipeline.followers.operating import status, waiting
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.sequences import FollowerSequences, MovedSequence
from pipeline.log.staging import progress
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.terminal import drawing
from pipeline.wal import lsn

LOG_SECONDS = 30.0
"""Seconds that the log has to reach what was committed while the follower was released."""
_POLL = 0.05
_PROGRAM = "pipeline followers"


@dataclass(frozen=True)
class CameAfter:
    """Events of the follower's tables in the log after its last seq, which the follower lacks."""

    events: int
    first_seq: int | None
    last_seq: int | None
    tables: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReleasedFollower:
    """A released follower. It has everything up to `seq`, whose transaction has the LSN `commit_lsn`.

    `came_after`: what was committed at the source after that; None: the log has not got there. `sequences`: the checked
    sequences; None without `--sequences`.
    """

    follower: str
    seq: int
    commit_lsn: lsn.Shown | None
    came_after: CameAfter | None
    sequences: list[MovedSequence] | None
    warnings: list[str] = field(default_factory=list)

    JSON: ClassVar = ("ok", "follower", "seq", "commit_lsn", "came_after", "sequences", "warnings")

    @property
    def ok(self) -> bool:
        """True if the follower is known to lack nothing that the source has."""
        return self.came_after is not None and not self.came_after.events


def release(
    config: Config, source: Connection, pipeline: Connection, name: str, *, sequences: bool
) -> ReleasedFollower:
    """Wait until a follower has everything that is committed at the source, then end it: nothing more is applied to it.

    A second call finishes a call that was cut off. Raises UnknownFollowerError, and FollowerError with the obstacle and
    the remedy; nothing is changed then, unless the text says so.
    """
    status.show(pipeline, name)
    found = registry.find(pipeline, name)[0]
    stored = sources.find(pipeline, config.source_id)
    if stored is None or stored.id != found.source_id:
        raise FollowerError(f"{connecting.label(name)} is of another source than the one in the settings")
    with (
        connecting.connect(name, found.dsn, program=_PROGRAM) as there,
        reading_session.connect(config, name=_PROGRAM, settings=session_settings.SOURCE)
        if sequences
        else nullcontext() as reading,
    ):
        is_begun = position.schema_version(there) is not None
        if not (is_begun and position.is_released(there, found.source_id, name, found.id)):
            _wait_for_source(config, source, pipeline, name)
            found = registry.find(pipeline, name)[0]  # tables may have been created or renamed
        known = FollowerSequences(reading, there, found.table_states) if reading else None
        last = position.release(there, found.source_id, name, found.id)
        if last is None:
            raise FollowerError(
                f"{connecting.label(name)} has no position in its database; remove it, and add it again"
            )
        moved = known.move() if known else None
        violated = checks.unvalidated(there, last)
        after = _came_after(source, pipeline, stored, found, last)
    registry.remove(pipeline, name)
    warnings = [
        *_warnings(name, last, after),
        *_missing_sequences(known),
        *_violated_checks(violated),
        *_large_objects(source),
    ]
    return ReleasedFollower(name, last.seq, last.commit_lsn, after, moved, warnings)


def _wait_for_source(config: Config, source: Connection, pipeline: Connection, name: str) -> None:
    """Wait until the follower has what is committed now, as `wait` does. Raises FollowerError if it cannot."""
    shown = status.show(pipeline, name)
    copying = [each.table for each in shown.tables if each.state == "copying"]
    if shown.state in ("paused", "stopped") or shown.reason == status.NO_SERVER:
        why = f": {shown.reason}" if shown.reason else ""
        remedy = f"; {shown.remedy}" if shown.remedy else ""
        raise FollowerError(
            f"{connecting.label(name)} is {shown.state}, and can be released when it follows{why}{remedy}"
        )
    if shown.state == "copying" or copying:
        which = ", ".join(copying) or "its tables"
        raise FollowerError(
            f"{connecting.label(name)} can be released when {which} is copied; wait for that: "
            f"`pipeline followers wait {name}`"
        )
    waited = waiting.wait(config, source, pipeline, [name])
    if waited.reason is not None:
        raise FollowerError(waited.reason)


def _came_after(
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    registration: RegisteredFollower,
    last: FollowerPosition,
) -> CameAfter | None:
    """Return what is committed by now and the follower lacks; None if the log does not get there in time."""
    marked, until = source_rows.mark(source), time.monotonic() + LOG_SECONDS
    while not progress.log_reaches(pipeline, stored.id, marked)[0]:
        if time.monotonic() > until:
            return None
        time.sleep(_POLL)
    values = {
        "after": last.seq,
        "source": registration.source_id,
        "oids": [table.table_oid for table in registration.table_states],
    }
    return queries.one(pipeline, CameAfter, statement("followers.operating", "events_after"), values)


def _warnings(name: str, last: FollowerPosition, after: CameAfter | None) -> Iterator[str]:
    what = connecting.label(name)
    if after is None:
        yield (
            f"{what}: the log does not have yet what was committed at the source since; it shows if anything came "
            f"after seq {last.seq}, once `pipeline status` says that it is up to date"
        )
    elif after.events:
        yield (
            f"{what} ended at seq {last.seq}, and the source was written after that: seq {after.first_seq} to "
            f"{after.last_seq} of {', '.join(after.tables)} are not in it; they are in the log"
        )


def _missing_sequences(known: FollowerSequences | None) -> Iterator[str]:
    for column in known.missing() if known else ():
        yield f"{column} takes its values from a sequence at the source, but the follower has no such sequence"


def _violated_checks(found: Sequence[UnvalidatedCheck]) -> Iterator[str]:
    for each in found:
        yield f"{each}; correct those rows, then run there: `{each.validates}`"


def _large_objects(source: Connection) -> Iterator[str]:
    found = int(queries.value(source, "select count(*) from pg_catalog.pg_largeobject_metadata"))
    if found:
        yield (
            f"the source has {drawing.count(found, 'large object')}, which the log does not carry: they are not in "
            "the follower; copy them with `pg_dump --large-objects` and pg_restore before it is written"
        )
