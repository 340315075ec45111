"""`pipeline sources`: the source, and the epochs of its history."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipeline.cli.commands.context import Json, connected, load, output

app = typer.Typer(help="The source, and the epochs of its history.", no_args_is_help=True)


@app.command("list")
def sources_list(context: typer.Context, as_json: Json = False) -> int:
    """Sources that the pipeline database knows: which cluster, timeline and slot, how far, in which epoch."""
    from pipeline.cli.render import status
    from pipeline.operate import sources as known_sources

    with connected(context, "sources") as (_, connection):
        found = known_sources.collect(connection)
    output({"data": found}, as_json, lambda: status.sources(found))
    return 0


@app.command("adopt")
def sources_adopt(context: typer.Context) -> int:
    """Begin a new epoch at the source as it is now, when positions cannot go on there. Stop the server first."""
    from pipeline.operate.repair import adopt as adoption
    from pipeline.postgres import databases

    config = load(context, "sources")
    with databases.resolved(config, start=databases.embedded_server(config).data.is_dir()) as resolved:
        adopted = adoption.adopt(resolved)
    print("\n".join(adopted.lines()) if adopted else "the source is the one we know; nothing was changed")
    return 0


@app.command("rewrites")
def sources_rewrites(
    context: typer.Context,
    settle: Annotated[str | None, typer.Option(metavar="TABLE", help="Its rows have been written since.")] = None,
    as_json: Json = False,
) -> int:
    """Tables whose values DDL has changed without events: the log has what rows held before."""
    from pipeline.capture.schema_history import rewrites
    from pipeline.cli.render import status

    with connected(context, "sources") as (_, connection):
        settled = rewrites.settle(connection, settle) if settle else None
        found = rewrites.unsettled(connection)
    if settled == 0:
        print(f"{settle} is no table that waits to be settled", file=sys.stderr)
    output({"data": found}, as_json, lambda: status.rewrites(found))
    return 1 if settled == 0 else 0


@app.command("skip-transaction")
def sources_skip_transaction(
    context: typer.Context,
    position: Annotated[str, typer.Argument(metavar="LSN", help="Of its commit, as `pipeline status` names it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Go on without a transaction that the source cannot send. An event in its place says so."""
    from pipeline.errors import ConfigError
    from pipeline.operate.repair import skip_transaction

    with connected(context, "sources") as (config, connection):
        stop = skip_transaction.find(config, connection, position)
        print(skip_transaction.consequence(stop))
        if not yes and not sys.stdin.isatty():
            raise ConfigError("nobody is there to confirm it; add --yes")
        if not yes:
            typer.confirm("Go on without it?", abort=True)
        print(skip_transaction.request(config, connection, stop))
    return 0
