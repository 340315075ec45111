"""`spark-submit export.py`, or `pipeline export run`, which starts it: bring the lake up to the head of the log.

What it does is printed as JSON, one event a line. Exit status 0: everything up to the head is in the lake; 1: not, and
the last line says why.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from lake import class_archive, ledger, parent, replaced, script
from lake.changes import exporter, plan, retention_check
from lake.folder import Folder
from lake.kept_session import KeptSession
from lake.states import current
from pyspark_sequin_events import catalog

MOST_RANGES = 1000
"""With more ranges of seq than this, ranges are made by counting events: most would be empty otherwise."""


def main(argv: list[str]) -> int:
    """Run the export that the arguments ask for, and those that are asked for while its Spark session is kept."""
    with KeptSession() as kept:
        asked: list[str] | None = argv
        while asked is not None:
            arguments = _arguments(asked)
            if status := script.run(partial(run, kept=kept), arguments):
                return status
            asked = _next(kept, arguments.keep_session)
    class_archive.leave_behind()
    return 0


def _next(kept: KeptSession, seconds: float) -> list[str] | None:
    if not seconds or not kept.is_worth_keeping:
        return None
    script.say("kept", seconds=seconds)
    asked = parent.next_run(seconds)
    return asked if asked is not None and kept.is_usable() else None


def run(dsn: str, arguments: argparse.Namespace, kept: KeptSession) -> None:
    """Export up to the newest event at the start, then bring the states up to it.

    If there is nothing new, Spark is not started.
    """
    with ledger.opened(dsn) as opened_ledger, catalog.connect(dsn) as connection:
        lake = exporter.open_lake(opened_ledger, Folder(arguments.export_dir), arguments.events_table)
        current.recover(lake, arguments.keep)
        after = retention_check.begins_after(opened_ledger, lake.id, connection, arguments.events_table)
        head = catalog.head(connection, arguments.events_table)
        if after >= head:  # a crash may have left exported changes that are not in the states
            pending = current.outdated(lake)
            if all(each.error for each in pending):
                current.fold_all(None, lake, pending, lambda _: None)
                script.say("done", exported_upto=after, rows=0)
                return
        bounds = after, head
        todo = list(catalog.ranges(connection, arguments.events_table, bounds, arguments.range_rows, MOST_RANGES))
        script.say("begins", after_seq=after, upto_seq=head, ranges=len(todo))
        rows = 0
        with kept.spark(arguments, "pipeline export") as spark:
            for number, bounds in enumerate(todo, 1):
                files = exporter.export(
                    spark,
                    lake,
                    connection,
                    dsn,
                    bounds,
                    run=arguments.run,
                    rows_per_file=arguments.rows_per_file,
                    report=partial(report_progress, number, len(todo)),
                )
                rows += sum(file.rows for file in files)
                script.say("committed", range=number, ranges=len(todo), upto_seq=bounds[1], files=len(files), rows=rows)
            current.fold_all(spark, lake, current.outdated(lake), lambda made: script.say("state", **vars(made)))
        script.say("done", exported_upto=max(after, head), rows=rows)


def report_progress(number: int, ranges: int, now: exporter.Progress) -> None:
    """Print how far a range is."""
    script.say("progress", range=number, ranges=ranges, **vars(now))


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = script.parser("export.py", __doc__)
    parser.add_argument("--run", type=int, help="id in pipeline.export_runs, when the server starts this")
    parser.add_argument(
        "--keep", type=float, default=replaced.KEEP, help="seconds that replaced files stay (default: %(default)g)"
    )
    parser.add_argument(
        "--keep-session", type=float, default=0, help="seconds to wait for another run, asked for on standard input"
    )
    parser.add_argument("--range-rows", type=int, default=exporter.RANGE_ROWS, help="seqs exported at once")
    parser.add_argument("--rows-per-file", type=int, default=plan.ROWS_PER_FILE, help="the most rows of a file")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
