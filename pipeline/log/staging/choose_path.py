"""Choose the path that a batch takes into the log, or the next one after a path has declined it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from pipeline.log.staging.batch import ChangeBatch

MOST_ROWS = 1_000
"""A larger batch is staged: the worker's next batch and the shuffler's move then run at the same time."""
MOST_BYTES = 1_000_000
"""A batch of more bytes is staged, for the same reason."""


class WritePath(StrEnum):
    """A way into the log. The values are labels of metrics.

    `DIRECT`: one transaction writes events, progress and watermark. `STAGED`: rows are staged, and the shuffler moves
    them. `PARTITIONED`: rows are written to new tables, which the shuffler attaches as partitions.
    """

    DIRECT = "at_once"
    STAGED = "move"
    PARTITIONED = "adopt"


class PathReason(StrEnum):
    """Why a batch is staged, or why a path declined it. The values are labels of metrics.

    Known of the batch and the writer: `OFF` the direct path is not this writer's, or switched off; `LARGE`
    too many rows or bytes; `PART` a part of a transaction, or behind one; `PARTITION` the events table lacks the
    partition that the rows need, or the shuffler should make the next one; `FAILED` the direct path failed recently.

    Found at the log's end: `STAGED` something staged is not moved yet; `ROUTES` events go to several tables, or
    to another one; `TABLE` the events table has what only the shuffler can serve; `CHANGED` the log was restored.

    Found by trying: `VALUES` a row has values that only the shuffler can fill in or write; `CHANGED` the watermark
    moved; `FAILED` the database refused.

    The shuffler's: `ADOPTION` it moves the rows of tables that cannot be attached.
    """

    OFF = "off"
    LARGE = "large"
    PART = "part_of_transaction"
    VALUES = "values"
    STAGED = "staged_before"
    ROUTES = "routes"
    TABLE = "table"
    PARTITION = "partition"
    CHANGED = "log_changed"
    FAILED = "failed"
    ADOPTION = "not_adopted"


class FirstStep(Enum):
    """A step that the writer must take before it can choose a path.

    `READ_END`: read where the log's end is. `END_RUN`: store and end the open run, to which the batch does not
    belong.
    """

    READ_END = "read end"
    END_RUN = "end run"


class LogEnd(NamedTuple):
    """The end of the log: all transactions up to `after` are in it, and nothing is staged behind them.

    `after` is a commit LSN of the source, and `seq` belongs to the newest event. The transaction that writes here
    compares `epoch`, `routes` and `oid` (of the events table) again.
    """

    epoch: int
    after: int
    routes: int
    oid: int
    seq: int


@dataclass(frozen=True)
class RunState:
    """The state of the partitioned path. Its tables belong to runs, and each run has segments.

    `may_begin`: the backlog is large enough for a new run, and no pause is on. `is_begun`: a run is open, and no other
    session hands out a `seq`. `may_continue`: the run may have more segments. `is_filling`: a segment is open, and its
    rows are not stored yet. `is_inside`: the segment ends with an incomplete transaction. `is_near`: the source is
    hardly ahead of the worker.
    """

    may_begin: bool = False
    is_begun: bool = False
    may_continue: bool = True
    is_filling: bool = False
    is_inside: bool = False
    is_near: bool = False


class KnownState(NamedTuple):
    """The facts by which a writer chooses a path.

    `worker`: its number. `small`: the setting for small batches, "at_once" or "staged". `end`: the log's end, or the
    reason why nothing can be written there; None if the writer must read it first. `begun`: the commit LSN of a
    transaction that is staged in part. `has_failed`: the direct path failed a moment ago. `partition_end`: the first
    seq behind the current partition. `next_partition_from`: the seq from which the shuffler should create the next
    partition. `run`: the state of the partitioned path, None if the writer has no such path. `declined`: the paths
    that have declined this batch or an earlier part of it, each with the reason of the direct path.
    """

    worker: int
    small: str
    end: LogEnd | PathReason | None = None
    begun: int | None = None
    has_failed: bool = False
    partition_end: float = math.inf
    next_partition_from: float = math.inf
    run: RunState | None = None
    declined: Mapping[WritePath, PathReason | None] = MappingProxyType({})


def writes_directly(worker: int, small: str) -> bool:
    """Return True if a worker has the direct path: its SQL moves the position of worker 0, so no other may take it."""
    return worker == 0 and small != "staged"


def choose_path(batch: ChangeBatch, known: KnownState) -> tuple[WritePath, PathReason | None] | FirstStep:
    """Return the path that this batch takes, and why it is staged; None for the other paths.

    A batch belongs to the partitioned path while a segment or a run is open, or if one may begin; else to the direct
    path if it is small and whole and nothing is staged before it. The staged path takes any batch and never declines.
    """
    if _belongs_to_run(batch, known):
        return WritePath.PARTITIONED, None
    if known.run is not None and known.run.is_begun:
        return FirstStep.END_RUN
    if reason := known.declined.get(WritePath.DIRECT) or _why_not_direct(batch, known):
        return WritePath.STAGED, reason
    if known.end is None:
        return FirstStep.READ_END
    if isinstance(known.end, PathReason):
        return WritePath.STAGED, known.end
    last_seq = known.end.seq + len(batch.rows)
    if last_seq >= known.partition_end or last_seq >= known.next_partition_from:
        return WritePath.STAGED, PathReason.PARTITION
    return WritePath.DIRECT, None


def _belongs_to_run(batch: ChangeBatch, known: KnownState) -> bool:
    run = known.run
    if run is None or WritePath.PARTITIONED in known.declined:
        return False
    if run.is_filling:
        return run.is_inside or not run.is_near
    if known.begun is not None or not batch.rows or batch.ends_staged or batch.places_range:
        return False
    return run.may_continue and not run.is_near if run.is_begun else run.may_begin


def _why_not_direct(batch: ChangeBatch, known: KnownState) -> PathReason | None:
    """Return why this batch may not take the direct path; None if it may. The log's end is not considered."""
    if not writes_directly(known.worker, known.small):
        return PathReason.OFF
    if known.begun is not None or batch.open_lsn is not None or batch.ends_staged:
        return PathReason.PART
    if batch.position is None or not batch.rows:
        return PathReason.PART
    if len(batch.rows) > MOST_ROWS or sum(map(len, batch.rows)) > MOST_BYTES:
        return PathReason.LARGE
    return PathReason.FAILED if known.has_failed else None
