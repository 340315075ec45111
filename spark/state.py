"""Write a table of the lake as of a seq: `spark-submit state.py`, which `pipeline export state` starts.

The script prints each step as JSON, one event a line. Exit status 0: the state is in the output folder; 1: it is not,
and the last line says why.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lake import ledger
from lake.changes import moments
from lake.folding import as_of
from lake.running import script
from lake.storage import identity


def main(argv: list[str]) -> int:
    """Write the state that the arguments describe."""
    return script.run(run, _arguments(argv))


def run(dsn: str, arguments: argparse.Namespace) -> None:
    """Check that the state can be written, then start Spark and write it."""
    moment = moments.parse(arguments.as_of)
    with ledger.open_ledger(dsn) as opened_ledger:
        lake = identity.open_for_reading(opened_ledger, identity.folder_at(arguments.export_dir))
        wanted = as_of.check_request(lake, arguments.table, moments.seq_at(lake, moment), arguments.output)
        script.print_event("begins", dataset=wanted.dataset, seq=wanted.seq, output=str(wanted.output))
        with script.spark(arguments, "pipeline export state") as spark:
            published = as_of.write_state(spark, lake, wanted)
        script.print_event("done", **vars(published), output=str(wanted.output))


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = script.parser("state.py", __doc__)
    parser.add_argument("table", help="schema.table at the source")
    parser.add_argument(
        "--as-of",
        required=True,
        help="a seq: all changes up to it are in the state; or a time in ISO 8601 (UTC): those before a later commit",
    )
    parser.add_argument("--output", type=Path, help="a new folder (default: states/<table>/<seq> in the lake)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
