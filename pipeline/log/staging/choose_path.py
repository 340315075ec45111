"""Which way a batch takes into the log, and why: the one place that decides it. Pure."""

from __future__ import annotations

from enum import StrEnum

from pipeline.log.staging.batch import Batch

MOST_ROWS = 1_000
"""A larger batch is staged: the worker's next one and the shuffler's move then share the time."""
MOST_BYTES = 1_000_000


class Way(StrEnum):
    """`AT_ONCE`: one transaction writes events, progress and watermark. `MOVE`: staged, and moved by the shuffler.
    `ADOPT`: staged as tables that become partitions.
    """

    AT_ONCE = "at_once"
    MOVE = "move"
    ADOPT = "adopt"


class Reason(StrEnum):
    """Why a batch is staged and moved."""

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


def of_batch(batch: Batch) -> Reason | None:
    """Why this batch cannot be written at once, by itself; None when it can. Its rows are looked at when written."""
    if batch.open_lsn is not None or batch.ends_staged or batch.position is None or not batch.rows:
        return Reason.PART
    if len(batch.rows) > MOST_ROWS or sum(map(len, batch.rows)) > MOST_BYTES:
        return Reason.LARGE
    return None
