"""What the demo says at its end: the verdict with its figures, and what to try next."""

from __future__ import annotations

import os
import shlex
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pipeline import databases, db
from pipeline.demo import screen
from pipeline.demo.shop import CLERKS
from pipeline.embedded import Server

_SHOWN_DIFFERENCES = 5


@dataclass(frozen=True)
class Outcome:
    """How it went. `differences`: empty when all is well. `delays`: seconds from commit to this program's reader.

    `in_wal`: whether the WAL was there to be asked for the order of commits.
    """

    differences: list[str]
    commits: int
    changes: int
    rollbacks: int
    savepoints: int
    seconds: float
    delays: list[float]
    counts: dict[tuple[str, str], int]
    in_wal: bool


def report(console: Console, outcome: Outcome, server: Server, folder: Path) -> int:
    """Say how it went; returns the exit status."""
    console.print()
    if outcome.differences:
        console.print(f"[bold red]✗ {len(outcome.differences)} differences[/] between what was written and the log:")
        for difference in outcome.differences[:_SHOWN_DIFFERENCES]:
            console.print(f"  {difference}", markup=False)
        console.print(f"The log of the server is {short(folder / 'serve.log')}; the data is kept.", markup=False)
        return 1
    cuts = statistics.quantiles(outcome.delays, n=100)
    console.print("[bold green]✓ every change arrived once, in order[/]")
    console.print(
        f"  {outcome.commits:,} commits of {CLERKS} concurrent writers in {outcome.seconds:g} s, "
        f"{outcome.changes:,} changes: {screen.totals(outcome.counts)}.\n"
        f"  {outcome.rollbacks:,} transactions rolled back and {outcome.savepoints:,} times back to a savepoint: "
        "no trace of them in the log.\n"
        "  Count, order and every value are as the writers themselves wrote them down"
        f"{', every commit_lsn as pg_waldump has it' if outcome.in_wal else ''}.\n"
        f"  From commit to a reader woken by NOTIFY: median {cuts[49] * 1000:.0f} ms, "
        f"99 of 100 within {cuts[98] * 1000:.0f} ms."
    )
    _invite(console, server, folder)
    return 0


def _invite(console: Console, server: Server, folder: Path) -> None:
    command = shlex.join([*_program(), "--data-dir", short(folder), "serve"])
    console.print("\n[bold]Look at it yourself.[/] Start the server on this data, then connect in another terminal:\n")
    for line in (command, server.psql_command(databases.PIPELINE)):
        console.print(f"  {line}", markup=False)
    console.print("\n[bold]First queries[/]\n")
    console.print(db.sql("demo", "to_try").strip(), markup=False)
    console.print(f"\nThe shop is the database source: {server.psql_command(databases.SOURCE)}", markup=False)
    console.print("Change something there, and it is the next event.")


def _program() -> list[str]:
    """How this program was started."""
    name = Path(sys.argv[0])
    return [short(Path(sys.executable)), "-m", "pipeline"] if name.name == "__main__.py" else [short(name)]


def short(path: Path) -> str:
    """As it is typed from here."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)
