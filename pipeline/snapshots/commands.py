"""`pipeline backfill`: ask the running server to read the rows of a table, for the first time or again."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.printable import say
from pipeline.terminal import json_values
from pipeline.terminal.command import Json, connected, load, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.config.settings import Config
    from pipeline.postgres.connections import Connection
    from pipeline.snapshots.status import BackfillStatus

app = typer.Typer(help="Backfills: read the rows of tables in parallel with the stream.", no_args_is_help=True)

LOOK_SECONDS = 0.5
"""Seconds between two queries of --wait."""
Number = Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="Number that `backfill list` shows.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="schema.table", show_default=False)]
Where = Annotated[str | None, typer.Option(metavar="CONDITION", help="Read only the rows that fulfil this condition.")]
Differences = Annotated[bool, typer.Option("--differences", help="Append only what differs from the log.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the log as it is for these partitions.")]
Always = Annotated[
    bool | None,
    typer.Option(
        "--always/--no-always", help="Also accept partitions that are detached or dropped later.", show_default=False
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Show the progress until the backfill ends. Ctrl-C leaves it running.")
]


@app.command("start", epilog="Example: pipeline backfill start public.orders --where 'total > 100' --wait")
def backfill_start(
    context: typer.Context,
    table: Table,
    where: Where = None,
    differences: Differences = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """Read a captured table's rows; each becomes an event with the action read, unless the log has a newer one.

    With --differences the server compares the table with the log; only what differs becomes inserts, updates, deletes.
    """
    from pipeline.postgres import connections, databases, migrations
    from pipeline.snapshots import render, start, status

    config = load(context, "backfill")
    name = "pipeline backfill"
    with (
        databases.existing(config) as config,
        connections.connect_promptly(config.database, "pipeline database", name=name) as pipeline,
    ):
        migrations.require_head(pipeline)
        with connections.connect_promptly(config.source, "source", name=name) as source:
            chosen = start.by_text(where)
            found = start.start(config, source, pipeline, table, chosen, differences=differences)
        if wait:
            return _wait(config, pipeline, found, as_json)
        served = status.is_served(pipeline)
        values = {**json_values.as_json(found), "server_runs": served}
        output(values, as_json, lambda: say(render.started(found, served=served)))
    return 0


@app.command("list", epilog="Example: pipeline backfill list --limit 5")
def backfill_list(
    context: typer.Context,
    as_json: Json = False,
    limit: Annotated[int, typer.Option(min=1, help="Show this many of the newest.")] = 20,
) -> int:
    """List the newest backfills, including those that the server started for tables that joined."""
    from pipeline.snapshots import snapshot_status, status
    from pipeline.snapshots.render import show_backfills

    with connected(context, "backfill") as (config, connection):
        found, now = status.list_backfills(config, connection, limit), snapshot_status.find(config, connection)
    values = {"data": found, "incomplete": now.unread if now else []}
    output(values, as_json, lambda: show_backfills(found, now))
    return 0


@app.command("settle", epilog="Example: pipeline backfill settle public.orders --keep")
def backfill_settle(
    context: typer.Context, table: Table, keep: Keep = False, always: Always = None, as_json: Json = False
) -> int:
    """Accept that the log differs from the table after partitions joined or left; the log stays as it is."""
    from pipeline.snapshots import partitions_kept, render

    if not keep:
        remedy = f"pipeline backfill start {table} --differences"
        raise typer.BadParameter(f"--keep is needed; to make the log equal instead: {remedy}")
    with connected(context, "backfill") as (config, connection):
        found = partitions_kept.keep(config, connection, table, always=always)
    output(found, as_json, lambda: say(render.kept(found)))
    return 0


@app.command("show", epilog="Example: pipeline backfill show 3")
def backfill_show(context: typer.Context, number: Number, as_json: Json = False) -> int:
    """Show one backfill: how far it is, how fast, and how long it still takes."""
    from pipeline.snapshots import status
    from pipeline.snapshots.render import show_backfill

    with connected(context, "backfill") as (config, connection):
        found = status.show(config, connection, number)
    output(found, as_json, lambda: show_backfill(found))
    return 0


@app.command("pause", epilog="Example: pipeline backfill pause 3")
def backfill_pause(context: typer.Context, number: Number, as_json: Json = False) -> int:
    """Pause a backfill. Ranges that are being read are finished."""
    from pipeline.snapshots import status

    return _change(context, status.pause, number, as_json)


@app.command("resume", epilog="Example: pipeline backfill resume 3")
def backfill_resume(context: typer.Context, number: Number, as_json: Json = False) -> int:
    """Resume a paused backfill."""
    from pipeline.snapshots import status

    return _change(context, status.resume, number, as_json)


@app.command("cancel", epilog="Example: pipeline backfill cancel 3")
def backfill_cancel(context: typer.Context, number: Number, as_json: Json = False) -> int:
    """Cancel a backfill. The events that it has added stay."""
    from pipeline.snapshots import status

    return _change(context, status.cancel, number, as_json)


def _change(
    context: typer.Context, change: Callable[[Config, Connection, int], BackfillStatus], number: int, as_json: bool
) -> int:
    from pipeline.snapshots import render

    with connected(context, "backfill") as (config, connection):
        found = change(config, connection, number)
    output(found, as_json, lambda: say(render.line(found)))
    return 0


def _wait(config: Config, pipeline: Connection, found: BackfillStatus, as_json: bool) -> int:
    """Show the progress until the backfill ends; returns 1 if it failed or was cancelled, 130 after Ctrl-C."""
    from pipeline.snapshots import backfill_progress, render, status

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` sends it
    try:
        with backfill_progress.progress_printer(_print_line if as_json else None) as tell:
            tell(found, served=status.is_served(pipeline))
            while not found.ended:
                time.sleep(LOOK_SECONDS)
                found = status.show(config, pipeline, found.id)
                tell(found, served=status.is_served(pipeline))
    except KeyboardInterrupt:
        if not as_json:
            say(render.left_running(found))
        return 130
    if not as_json:
        say(render.line(found))
    return 0 if found.state == "complete" else 1


def _print_line(value: Any) -> None:
    print(json.dumps(json_values.as_json(value)), flush=True)
