"""Which engine folds a table: small ones a task each, on Arrow, all in one Spark job; the others by DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from lake.errors import ExportError
from lake.folding.small import fold as small
from lake.running import cluster
from lake.states.fold import fold as fold_by_frames
from lake.states.folded import FoldResult, FoldTask
from lake.states.plan import PlannedFold

TABLES_AT_ONCE = 100
"""Small tables that one Spark job folds: while others are folded, these are published."""
Outcome = FoldResult | ExportError


def is_small(foldings: Sequence[PlannedFold]) -> bool:
    """Whether a table is folded beside others, if it turns out to be as small as its files."""
    return small.fits(foldings)


def fold_small(spark: SparkSession, tasks: Sequence[FoldTask]) -> Sequence[Outcome | None]:
    """What has come of each, folded in one job; None: it is too large for that."""
    # One such job after the other, so that the first can be published while the next are folded.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "small")
    try:
        return cluster.run_tasks(spark, small.fold, tasks, lambda _: None, description="fold")
    except ExportError as error:  # which table broke the job is not known
        print(f"small tables are folded one by one, since their job ended: {error}", file=sys.stderr, flush=True)
        return [None] * len(tasks)


def fold_large(spark: SparkSession, task: FoldTask) -> Outcome:
    """What has come of it."""
    spark.sparkContext.setLocalProperty("spark.job.description", f"fold {task.foldings[-1].dataset}")
    try:
        return fold_by_frames(spark, task.root, task.base_folder, task.foldings, task.target)
    except ExportError as error:
        return error


def fold_one(spark: SparkSession, task: FoldTask) -> FoldResult:
    """Fold it by the engine that is right for it. Raises ExportError."""
    outcome = fold_small(spark, [task])[0] if is_small(task.foldings) else None
    outcome = outcome or fold_large(spark, task)
    if isinstance(outcome, ExportError):
        raise outcome
    return outcome
