"""Chooses the engine of a fold: one Spark job folds small tables, a task each, on Arrow; DataFrames fold the others."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from lake.errors import ExportError
from lake.folding.small import fold as small
from lake.running import cluster
from lake.states.fold import fold as fold_by_frames
from lake.states.fold_tasks import FoldResult, FoldTask
from lake.states.plan import PlannedFold

TABLES_AT_ONCE = 100
"""The most small tables that one Spark job folds: they are published while the next job runs."""
Outcome = FoldResult | ExportError


def is_small(foldings: Sequence[PlannedFold]) -> bool:
    """Return True if a table may be folded in a job with others. Its rows may still turn out to be too large."""
    return small.fits(foldings)


def fold_small(spark: SparkSession, tasks: Sequence[FoldTask]) -> Sequence[Outcome | None]:
    """Fold tables in one job, and return their outcomes; None: the table is too large for a task."""
    # One such job at a time, so that its tables can be published while the next job runs.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "small")
    try:
        return cluster.run_tasks(spark, small.fold, tasks, lambda _: None, description="fold")
    except ExportError as error:  # the error does not tell which table broke the job
        print(f"small tables are folded one by one, since their job ended: {error}", file=sys.stderr, flush=True)
        return [None] * len(tasks)


def fold_large(spark: SparkSession, task: FoldTask) -> Outcome:
    """Fold a table with DataFrames, and return the outcome."""
    spark.sparkContext.setLocalProperty("spark.job.description", f"fold {task.foldings[-1].dataset}")
    try:
        return fold_by_frames(spark, task.root, task.base_folder, task.foldings, task.target)
    except ExportError as error:
        return error


def fold_one(spark: SparkSession, task: FoldTask) -> FoldResult:
    """Fold a table with the engine that suits its size. Raises ExportError."""
    outcome = fold_small(spark, [task])[0] if is_small(task.foldings) else None
    outcome = outcome or fold_large(spark, task)
    if isinstance(outcome, ExportError):
        raise outcome
    return outcome
