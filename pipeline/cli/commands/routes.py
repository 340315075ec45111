"""`pipeline routes`: which changes go to which events table, and since when."""

from __future__ import annotations

import typer

from pipeline.cli.commands.context import Json, connected, output

app = typer.Typer(help="Which changes go to which events table.", no_args_is_help=True)


@app.callback()
def routes() -> None:
    """Which changes go to which events table. They are set by PIPELINE_ROUTES, or [[routes]] in pipeline.toml."""


@app.command("list")
def routes_list(context: typer.Context, as_json: Json = False) -> int:
    """Routes that hold, events tables with their newest seq and counts, and every change with its LSN."""
    from pipeline.cli.render import routes as report
    from pipeline.operate import routes as operation

    with connected(context, "routes") as (config, connection):
        found = operation.collect(config, connection)
    output(found, as_json, lambda: report.routing(found))
    return 0
