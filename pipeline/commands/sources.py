"""`pipeline sources`: the source, and the epochs of its history."""

from __future__ import annotations

import typer

from pipeline.commands.context import Json, load, output

app = typer.Typer(help="The source, and the epochs of its history.", no_args_is_help=True)


@app.command("list")
def sources_list(context: typer.Context, as_json: Json = False) -> int:
    """Sources that the pipeline database knows: which cluster, timeline and slot, how far, in which epoch."""
    from pipeline import databases, db
    from pipeline.operations import known_sources, report

    with (
        databases.resolved(load(context, "sources"), start=False) as config,
        db.connect(config.database, "pipeline database", name="pipeline sources") as connection,
    ):
        found = known_sources.collect(connection)
    output({"data": [each.to_json() for each in found]}, as_json, lambda: report.sources(found))
    return 0


@app.command("adopt")
def sources_adopt(context: typer.Context) -> int:
    """Begin a new epoch at the source as it is now, when positions cannot go on there. Stop the server first."""
    from pipeline import databases
    from pipeline.operations import adoption

    config = load(context, "sources")
    with databases.resolved(config, start=databases.embedded_server(config).data.is_dir()) as resolved:
        adopted = adoption.adopt(resolved)
    print("\n".join(adopted.lines()) if adopted else "the source is the one we know; nothing was changed")
    return 0
