"""`pipeline routes`: which changes go to which events table, and since when."""

from __future__ import annotations

import typer

from pipeline.terminal.command import Json, connected, output

app = typer.Typer(help="Which changes go to which events table.", no_args_is_help=True)


@app.callback()
def routes() -> None:
    """Show which changes go to which events table, as set by PIPELINE_ROUTES or [[routes]] in pipeline.toml."""


@app.command("list", epilog="Example: pipeline routes list")
def routes_list(context: typer.Context, as_json: Json = False) -> int:
    """List routes in force, events tables with their newest seq and counts, and every change of routes with its LSN."""
    from pipeline.cli.render.routes import show_routing
    from pipeline.operate import routes

    with connected(context, "routes") as (config, connection):
        found = routes.collect(config, connection)
    output(found, as_json, lambda: show_routing(found))
    return 0
