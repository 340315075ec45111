"""The choice of a path: a table of all its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import (
    MOST_BYTES,
    MOST_ROWS,
    FirstStep,
    KnownState,
    LogEnd,
    PathReason,
    RunState,
    WritePath,
    choose_path,
)

END = LogEnd(epoch=0, after=90, routes=1, oid=16_384, seq=1_000)
READ_END, END_RUN = FirstStep.READ_END, FirstStep.END_RUN
DIRECT = WritePath.DIRECT, None
PARTITIONED = WritePath.PARTITIONED, None
BACKLOG, RUN = RunState(may_begin=True), RunState(is_begun=True)
FILLING = RunState(is_begun=True, is_filling=True)

WORKER = KnownState(worker=0, small="at_once", end=END)
"""Worker 0 with small batches written directly, which knows the log's end."""
STAGES = WORKER._replace(small="staged", end=None)
PART = WORKER._replace(worker=3)

SMALL = ChangeBatch([b"row"] * 2, 100, 100, 1, 1, 101, 100, 0, None, 0)
OPEN = replace(SMALL, transactions=0, position=None, commit_lsn=None, committed_at=None, open_lsn=100, open_changes=2)
AND_MORE = replace(SMALL, last_lsn=200, open_lsn=200, open_changes=1)
END_OF_STAGED = replace(SMALL, ends_staged=True)
EMPTY_END = replace(END_OF_STAGED, rows=[])
RANGE = replace(EMPTY_END, places_range=True)


def staged(reason: PathReason) -> tuple[WritePath, PathReason]:
    return WritePath.STAGED, reason


def known(base: KnownState, **given: object) -> KnownState:
    return base._replace(**given)  # type: ignore[arg-type]


ROWS = [
    # The direct path: worker 0's alone, and only if the settings say so.
    ("a small batch at a known end", SMALL, WORKER, DIRECT),
    ("a small batch at an unknown end", SMALL, known(WORKER, end=None), READ_END),
    ("small batches must be staged", SMALL, known(WORKER, small="staged"), staged(PathReason.OFF)),
    ("a part's writer", SMALL, PART, staged(PathReason.OFF)),
    ("a part's writer that does not know the end", SMALL, known(PART, end=None), staged(PathReason.OFF)),
    # By the batch alone: nothing is looked at for it.
    ("a transaction of which more is to come", OPEN, known(WORKER, end=None), staged(PathReason.PART)),
    ("a whole one and the beginning of the next", AND_MORE, known(WORKER, end=None), staged(PathReason.PART)),
    ("the end of one that is staged in part", END_OF_STAGED, known(WORKER, end=None), staged(PathReason.PART)),
    ("the end of one, without rows", EMPTY_END, known(WORKER, end=None), staged(PathReason.PART)),
    ("the place of a range", RANGE, known(WORKER, end=None), staged(PathReason.PART)),
    ("no rows", replace(SMALL, rows=[]), known(WORKER, end=None), staged(PathReason.PART)),
    ("as many rows as are small", replace(SMALL, rows=[b"r"] * MOST_ROWS), WORKER, DIRECT),
    ("too many rows", replace(SMALL, rows=[b"r"] * (MOST_ROWS + 1)), WORKER, staged(PathReason.LARGE)),
    ("too many bytes", replace(SMALL, rows=[b"r" * (MOST_BYTES + 1)]), WORKER, staged(PathReason.LARGE)),
    # By what is remembered.
    ("behind the staged beginning of a transaction", SMALL, known(WORKER, begun=50), staged(PathReason.PART)),
    ("a moment after a failure", SMALL, known(WORKER, end=None, has_failed=True), staged(PathReason.FAILED)),
    ("the last seq with a partition", SMALL, known(WORKER, partition_end=1_003), DIRECT),
    ("a seq without a partition", SMALL, known(WORKER, partition_end=1_002), staged(PathReason.PARTITION)),
    (
        "the next partition should be made",
        SMALL,
        known(WORKER, next_partition_from=1_002),
        staged(PathReason.PARTITION),
    ),
    ("not yet", SMALL, known(WORKER, next_partition_from=1_003), DIRECT),
    *(
        (f"nothing can be written: {why}", SMALL, known(WORKER, end=why), staged(why))
        for why in (PathReason.STAGED, PathReason.ROUTES, PathReason.TABLE, PathReason.CHANGED, PathReason.PARTITION)
    ),
    *(
        (f"it was tried: {why}", SMALL, known(WORKER, end=None, declined={WritePath.DIRECT: why}), staged(why))
        for why in (PathReason.VALUES, PathReason.CHANGED, PathReason.FAILED)
    ),
    # The partitioned path: where a run may begin.
    ("a backlog", SMALL, known(WORKER, run=BACKLOG), PARTITIONED),
    ("a backlog, nothing is written directly", SMALL, known(STAGES, run=BACKLOG), PARTITIONED),
    ("a part's turn", SMALL, known(PART, run=BACKLOG), PARTITIONED),
    ("the beginning of a large transaction in a backlog", OPEN, known(WORKER, run=BACKLOG), PARTITIONED),
    ("no backlog", SMALL, known(WORKER, run=RunState()), DIRECT),
    ("no backlog, nothing is written directly", SMALL, known(STAGES, run=RunState()), staged(PathReason.OFF)),
    ("the rest of a staged transaction", SMALL, known(WORKER, run=BACKLOG, begun=50), staged(PathReason.PART)),
    ("the same, a part", SMALL, known(PART, run=BACKLOG, begun=50), staged(PathReason.OFF)),
    ("the end of a staged one", END_OF_STAGED, known(WORKER, run=BACKLOG), staged(PathReason.PART)),
    ("a range in a backlog", RANGE, known(WORKER, run=BACKLOG), staged(PathReason.PART)),
    (
        "a backlog that was declined",
        SMALL,
        known(WORKER, run=BACKLOG, declined={WritePath.PARTITIONED: PathReason.VALUES}),
        DIRECT,
    ),
    # While a run is open, no other session hands out a seq.
    ("a run goes on", SMALL, known(WORKER, run=RUN), PARTITIONED),
    ("a segment is open", SMALL, known(WORKER, run=FILLING), PARTITIONED),
    ("a segment, and a batch without rows", EMPTY_END, known(WORKER, run=FILLING), PARTITIONED),
    ("a segment, and a range", RANGE, known(WORKER, run=FILLING), PARTITIONED),
    ("a run, and a range", RANGE, known(WORKER, run=RUN), END_RUN),
    ("a run that has ended", SMALL, known(WORKER, run=replace(RUN, may_continue=False)), END_RUN),
    ("a run, and the source is near", SMALL, known(WORKER, run=replace(RUN, is_near=True)), END_RUN),
    (
        "a segment, and the source is near",
        SMALL,
        known(WORKER, run=replace(FILLING, is_near=True)),
        END_RUN,
    ),
    ("inside of a transaction", SMALL, known(WORKER, run=replace(FILLING, is_inside=True, is_near=True)), PARTITIONED),
]


@pytest.mark.parametrize(("batch", "state", "path"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_path_of_a_batch_is_that_of_the_table(batch: ChangeBatch, state: KnownState, path: object) -> None:
    assert choose_path(batch, state) == path


def test_every_path_and_every_reason_is_in_the_table() -> None:
    found = [row[3] for row in ROWS]
    assert {each[0] for each in found if isinstance(each, tuple)} == set(WritePath)
    assert {each[1] for each in found if isinstance(each, tuple)} == {*PathReason, None} - {PathReason.ADOPTION}
    assert {READ_END, END_RUN} <= {each for each in found if isinstance(each, FirstStep)}
