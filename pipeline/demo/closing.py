"""The end of the demo: the verdict with its figures, and commands to try next."""

from __future__ import annotations

import os
import shlex
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.config.settings import Config
from pipeline.demo import lake, roles, screen, stage
from pipeline.demo.lake import LakeExport
from pipeline.demo.shop import CLERKS
from pipeline.postgres import databases, queries
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.terminal import drawing

_SHOWN_DIFFERENCES = 5


@dataclass(frozen=True)
class DemoResult:
    """The result of the demo.

    `differences`: empty if the log is correct. `delays`: seconds from commit to this program's reader.

    `before`: rows that existed before the server. `in_wal`: True if the WAL still existed, so that the order of commits
    could be compared with it.
    """

    differences: list[str]
    commits: int
    changes: int
    rollbacks: int
    before: int
    savepoints: int
    seconds: float
    delays: list[float]
    counts: dict[tuple[str, str], int]
    in_wal: bool


def report(console: Console, outcome: DemoResult, server: EmbeddedServer, config: Config) -> int:
    """Report the result, then export the log and report that; returns the exit status."""
    console.print()
    if outcome.differences:
        return _differ(console, outcome.differences, "what was written and the log", config.data_dir / "serve.log")
    cuts = statistics.quantiles(outcome.delays, n=100)
    console.print("✓ every change arrived once, in order", style="bold green")
    console.print(
        f"  {drawing.count(outcome.commits, 'commit')} of {CLERKS} concurrent writers in {outcome.seconds:g} s, "
        f"{drawing.count(outcome.changes, 'change')}: {screen.totals(outcome.counts)}.\n"
        f"    {outcome.before:,} existing rows were read at the same time; the tables can be rebuilt from the log.\n"
        f"  {drawing.count(outcome.rollbacks, 'transaction')} rolled back and "
        f"{drawing.count(outcome.savepoints, 'time')} back to a savepoint: "
        "no trace of them in the log.\n"
        "  Count, order and every value are as the writers themselves wrote them down"
        f"{', every commit_lsn as pg_waldump has it' if outcome.in_wal else ''}.\n"
        f"  From commit to a reader woken by NOTIFY: median {cuts[49] * 1000:.0f} ms, "
        f"99 of 100 within {cuts[98] * 1000:.0f} ms."
    )
    if lake.possible():
        exported = lake.export(console, config)
        if exported.differences:
            return _differ(console, exported.differences, "the log and the Parquet files", lake.folder(config))
        _show_lake(console, exported, config)
    else:
        console.print("\nWith pip install '.[demo]' in a checkout, the log would be Parquet files by now.")
    _invite(console, server, config)
    return 0


def _differ(console: Console, differences: list[str], between: str, kept: Path) -> int:
    console.print(
        Text.assemble((f"✗ {drawing.count(len(differences), 'difference')}", "bold red"), f" between {between}:")
    )
    for difference in differences[:_SHOWN_DIFFERENCES]:
        console.print(f"  {difference}")
    console.print(f"See {short(kept)}; the data is kept.")
    return 1


def _show_lake(console: Console, exported: LakeExport, config: Config) -> None:
    console.print("\n✓ every event is in the lake, once", style="bold green")
    console.print(
        f"  Spark exported the log to {exported.files} Parquet "
        f"files in {short(lake.folder(config))}, {exported.seconds:.0f} s. DuckDB counts them as the log does:\n"
    )
    console.print(indent(exported.query, "  "))
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("  table")
    table.add_column("action")
    table.add_column("events", justify="right")
    for (name, action), number in sorted(exported.counts.items()):
        table.add_row(f"  {name}", action, f"{number:,}")
    console.print()
    console.print(table)


def _invite(console: Console, server: EmbeddedServer, config: Config) -> None:
    command = shlex.join([*_program(), "--config", short(stage.settings_file(config)), "serve"])
    invitation = " Start the server on this data, then connect in another terminal:\n"
    console.print(Text.assemble("\n", ("Look at it yourself.", "bold"), invitation))
    for line in (command, server.psql_command(databases.PIPELINE)):
        console.print(f"  {line}")
    console.print(f"\nThe server also shows the pipeline in a browser: http://127.0.0.1:{config.http_port}/console/")
    console.print("\nFirst queries\n", style="bold")
    console.print(queries.statement("demo", "to_try").strip())
    console.print(f"\nThe shop is the database source: {server.psql_command(databases.SOURCE, roles.OWNER)}")
    console.print("Change something there, and it is the next event.")


def _program() -> list[str]:
    """Return the command by which this program was started."""
    name = Path(sys.argv[0])
    return [short(Path(sys.executable)), "-m", "pipeline"] if name.name == "__main__.py" else [short(name)]


def short(path: Path) -> str:
    """Return the path relative to the current folder, if it is below it."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)
