"""Waits until followers follow each of their tables and have everything that is committed at the source by now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.capture.source import missing_source, sources
from pipeline.comparing import source_rows
from pipeline.config.settings import Config
from pipeline.errors import FollowerError
from pipeline.followers import registry
from pipeline.followers.operating import follower_definitions
from pipeline.followers.operating import status as followers
from pipeline.followers.operating.follower_partitions import FollowerPartitions
from pipeline.followers.operating.follower_tables import newest_of_source
from pipeline.followers.operating.status import FollowerStatus, join_reason
from pipeline.log.staging import progress
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn

_POLL = 0.1
"""Seconds between two checks."""


@dataclass(frozen=True)
class WaitResult:
    """The result of a wait. `reason`: why it ended before all followers had everything; None if they have it.

    Everything that was committed when the wait began is before `committed_lsn`. `seq`: its newest event; None if the
    log did not get there. `followers`: their status at the end.
    """

    ok: bool
    reason: str | None
    committed_lsn: lsn.Shown
    seq: int | None
    seconds: float
    followers: list[FollowerStatus]


def wait(
    config: Config,
    source: Connection,
    pipeline: Connection,
    names: Sequence[str],
    timeout: float | None = None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> WaitResult:
    """Wait until each follower has everything, one is paused or stopped, or `timeout` seconds have passed.

    Each follower must also have the table names, columns and partitions that the log and the source have.

    An applier reports its position about every half second. `on_wait` gets a line that says what the wait is for,
    after each check. Raises UnknownFollowerError, also if a follower is removed during the wait, and FollowerError if
    no source is known.
    """
    began = time.monotonic()
    stored = sources.find(pipeline, config.source_id)
    if stored is None:
        raise FollowerError(missing_source.explain_missing_source(pipeline))
    _read_statuses(pipeline, names)
    committed, seq = lsn.Lsn(source_rows.mark(source)), None
    partitions = FollowerPartitions(config, source, pipeline, stored)
    while True:
        if seq is None and progress.log_reaches(pipeline, stored.id, committed)[0]:
            seq = newest_of_source(pipeline, stored)
        found = _read_statuses(pipeline, names)
        lacking = [each for each in found if not has_everything(each, seq)]
        asked = lacking if seq is not None else [each for each in lacking if each.lacks]
        reason, waits = _find_obstacle(pipeline, asked, partitions), None
        if reason is None and not lacking:
            reason, waits = _find_differences(source, pipeline, names, partitions)
        passed = time.monotonic() - began
        is_over = not lacking and waits is None
        if reason is None and not is_over and timeout is not None and passed >= timeout:
            reason = _timeout_reason(lacking, seq, timeout, waits)
        if reason is not None or is_over:
            return WaitResult(reason is None, reason, committed, seq, round(passed, 3), found)
        on_wait(_describe_wait(lacking, seq, waits))
        time.sleep(_POLL if timeout is None else min(_POLL, max(timeout - passed, 0)))


def _find_obstacle(
    pipeline: Connection, lacking: Sequence[FollowerStatus], partitions: FollowerPartitions
) -> str | None:
    """Return the obstacle, except for followers that continue by themselves once the server sees a new partition."""
    reason = find_obstacle(lacking)
    if reason is None or not followers.is_served(pipeline):
        return reason
    stopped = [each.name for each in lacking if each.state == "stopped"]
    may_continue = [
        each.name for each in registry.find(pipeline) if each.name in stopped and partitions.may_continue(each)
    ]
    return find_obstacle([each for each in lacking if each.name not in may_continue])


def _find_differences(
    source: Connection, pipeline: Connection, names: Sequence[str], partitions: FollowerPartitions
) -> tuple[str | None, str | None]:
    """Return the differences of partitions, names and columns that stay, and those that disappear by themselves."""
    waits: str | None = None
    for each in registry.find(pipeline):
        finding = partitions.compare(each) if each.name in names else None
        if finding is None:
            continue
        said = f'follower "{each.name}": {finding.text}'
        if not finding.waits:
            return said, None
        waits = waits or said
    return (None, waits) if waits else (_find_other_definition(source, pipeline, names), None)


def _read_statuses(pipeline: Connection, names: Sequence[str]) -> list[FollowerStatus]:
    return [followers.show(pipeline, name) for name in dict.fromkeys(names)]


def has_everything(each: FollowerStatus, seq: int | None) -> bool:
    """Return True if a follower follows each of its tables and has this seq."""
    return seq is not None and each.seq >= seq and each.lacks is None


def find_obstacle(lacking: Sequence[FollowerStatus]) -> str | None:
    """Return one line on the first follower that cannot get everything by itself; None if all of them can."""
    for each in lacking:
        if each.state in ("paused", "stopped"):
            return join_reason(f'follower "{each.name}" is {each.state}', each.reason, each.remedy)
        for table in each.tables:
            if table.state == "stopped":
                what = f'follower "{each.name}": table {table.table} is stopped'
                return join_reason(what, table.reason, table.remedy)
    return None


def _find_other_definition(source: Connection, pipeline: Connection, names: Sequence[str]) -> str | None:
    """Return one line on a table of a follower with another name or other columns than in the log; None if none has."""
    for each in registry.find(pipeline):
        if each.name in names and (said := follower_definitions.find_difference(source, pipeline, each)):
            what = f'follower "{each.name}": {said}'
            return f"{what}; alter it there, or remove the follower and add it again"
    return None


def _timeout_reason(lacking: Sequence[FollowerStatus], seq: int | None, timeout: float, waits: str | None) -> str:
    if not lacking:
        return f"after {timeout:g} s {waits}"
    each = lacking[0]
    what = f'after {timeout:g} s follower "{each.name}"'
    if each.lacks:
        return f"{what} lacks something: {each.lacks}"
    if seq is None:
        return f"after {timeout:g} s the log does not have what was committed at the source; `pipeline status` says why"
    return join_reason(f"{what} is {each.state} at seq {each.seq} of {seq}", each.reason, each.remedy)


def _describe_wait(lacking: Sequence[FollowerStatus], seq: int | None, waits: str | None) -> str:
    if not lacking:
        return f"waiting: {waits}"
    if seq is None:
        return "waiting until the log has what is committed at the source"
    each = lacking[0]
    return f'waiting for follower "{each.name}": ' + (each.lacks or f"it is {each.state}")
