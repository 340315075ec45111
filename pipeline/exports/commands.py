"""`pipeline export`: export the log to the lake, and show what was exported."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.terminal import json_values
from pipeline.terminal.command import Json, connected, load, output

app = typer.Typer(help="The lake: the log as Parquet files, written by Spark.", no_args_is_help=True)

Limit = Annotated[int, typer.Option(min=1, help="Show this many of the newest.")]


NoWait = Annotated[bool, typer.Option("--no-wait", help="Fail while another export is running.")]


@app.command("run", epilog="Example: pipeline export run --no-wait")
def export_run(context: typer.Context, as_json: Json = False, no_wait: NoWait = False) -> int:
    """Export new events, after an export that is already running; shows the progress. --json: one event per line."""
    from pipeline.exports import export_progress, lakes
    from pipeline.postgres import databases

    with databases.without_source(load(context, "export")) as config, _stoppable() as stopped:
        if as_json:
            made = lakes.export(config, "command", _print_event, stopped, wait=not no_wait)
            if all(each.outcome.run is None for each in made):
                _print_event({"event": "done", "exported_upto": made[0].outcome.exported_upto, "rows": 0})
            return 0
        with export_progress.shown("looking for new events") as on_event:
            made = lakes.export(config, "command", on_event, stopped, wait=not no_wait)
        for each in made:
            export_progress.outcome(each.outcome, each.lake)
    return 0


@app.command("compact", epilog="Example: pipeline export compact")
def export_compact(context: typer.Context, as_json: Json = False) -> int:
    """Merge small files of changes now; a server does this on a schedule. --json: one event per line."""
    from pipeline.exports import compaction, export_progress
    from pipeline.postgres import databases

    with databases.without_source(load(context, "export")) as config, _stoppable() as stopped:
        if as_json:
            made = compaction.compact(config, _print_event, stopped)
            if not made:
                _print_event({"event": "done", "files_before": 0, "files_after": 0})
            return 0
        with export_progress.shown("looking for small files") as on_event:
            made = compaction.compact(config, on_event, stopped)
        export_progress.compacted(made)
    return 0


@app.command("list", epilog="Example: pipeline export list --limit 5")
def export_list(context: typer.Context, as_json: Json = False, limit: Limit = 20) -> int:
    """List the newest ranges, the newest runs with the reason if one failed, and folders that keep small files."""
    from pipeline.exports import ledger
    from pipeline.exports.render import show_exports
    from pipeline.snapshots import snapshot_status

    with connected(context, "export") as (config, connection):
        exports, runs = ledger.exports(connection, limit), ledger.runs(connection, limit)
        now = snapshot_status.find(config, connection)
        stay = ledger.unexchanged_folders(connection, config)
    values = {"data": exports, "runs": runs, "incomplete": now.unread if now else [], "unexchanged": stay}
    output(values, as_json, lambda: show_exports(exports, runs, now, stay))
    return 0


@app.command("show", epilog="Example: pipeline export show 7")
def export_show(
    context: typer.Context,
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="Number that `export list` shows.")],
    as_json: Json = False,
) -> int:
    """Show one range with its files."""
    from pipeline.exports import ledger
    from pipeline.exports.render import show_export

    with connected(context, "export") as (_, connection):
        found, files = ledger.export(connection, number)
    values = json_values.as_json(found) | {"files": files}
    output(values, as_json, lambda: show_export(found, files))
    return 0


@app.command("state", epilog="Example: pipeline export state public.orders --as-of 1042 --output orders")
def export_state(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.table")],
    as_of: Annotated[str, typer.Option(metavar="SEQ|TIME", help="The last seq to include, or a time in ISO 8601.")],
    directory: Annotated[Path | None, typer.Option("--output", help="A new folder for the files.")] = None,
    events_table: Annotated[
        str | None, typer.Option(help="The events table whose changes count, if not the default one.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Write a table as it was after a seq, or at a time, from the lake. --json: one event per line."""
    from pipeline.exports import export_progress, job, lakes
    from pipeline.postgres import databases

    with databases.without_source(load(context, "export")) as found, _stoppable() as stopped:
        config = lakes.require_settings(found, events_table)
        if as_json:
            job.state(config, table, as_of, directory, _print_event, stopped)
            return 0
        with export_progress.shown() as on_event:
            last = job.state(config, table, as_of, directory, on_event, stopped)
        export_progress.state(table, last)
    return 0


def _print_event(event: Any) -> None:
    print(json.dumps(event), flush=True)


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Let SIGINT and SIGTERM stop the script; what it has written stays consistent."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
