"""`pipeline sources`: the source, and the epochs of its history."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipeline.printable import say
from pipeline.terminal import confirm
from pipeline.terminal.command import Json, connected, load, output
from pipeline.terminal.confirm import Yes

app = typer.Typer(help="The source, and the epochs of its history.", no_args_is_help=True)


@app.command("list", epilog="Example: pipeline sources list --json")
def sources_list(context: typer.Context, as_json: Json = False) -> int:
    """List the sources that the pipeline database knows: cluster, timeline, slot, position and epoch."""
    from pipeline.cli.render import status
    from pipeline.operate import sources

    with connected(context, "sources") as (_, connection):
        found = sources.collect(connection)
    output({"data": found}, as_json, lambda: status.show_sources(found))
    return 0


@app.command("adopt", epilog="Example: pipeline sources adopt --reread")
def sources_adopt(
    context: typer.Context,
    reread: Annotated[bool, typer.Option("--reread", help="Compare all tables with the log then.")] = False,
    restored: Annotated[
        bool, typer.Option("--restored", help="The log was restored: give no seq again that it may have had.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Begin a new epoch at the source as it is now, if our positions are not valid there. Stop the server first.

    Says what the log will lack, and asks for the name of the source's database to be typed. With --reread the next
    server compares all captured tables with the log, and appends what differs.
    With --restored the log skips all seqs that readers may have seen, also if the positions are valid: run it after
    pipeline database and source went back together.
    """
    from pipeline.cli.render import losses
    from pipeline.operate.repair.adopt import adopt
    from pipeline.postgres import databases

    config = load(context, "sources")
    with databases.existing(config) as resolved:
        adopted = adopt(
            resolved,
            lambda gap: confirm.loss(losses.gap(gap, reread=reread), gap.database, yes),
            reread=reread,
            restored=restored,
        )
    changed = "the log has jumped, so no seq is given twice" if restored else "nothing was changed"
    unchanged = f"the source is the known one; {changed}"
    if reread:
        unchanged += ", and nothing is read; `pipeline backfill start TABLE --differences` compares a table"
    say(*(adopted.lines() if adopted else [unchanged]))
    return 0


@app.command("rewrites", epilog="Example: pipeline sources rewrites --settle public.orders")
def sources_rewrites(
    context: typer.Context,
    settle: Annotated[
        str | None, typer.Option(metavar="TABLE", help="All its rows were written since: settled.")
    ] = None,
    as_json: Json = False,
) -> int:
    """List tables whose values DDL has changed without events: the log still has the earlier values."""
    from pipeline.capture.schema_history import rewrites
    from pipeline.cli.render import status

    with connected(context, "sources") as (_, connection):
        chosen = [each for each in rewrites.read_unsettled(connection) if each.table == settle]
        for each in chosen:
            rewrites.settle(connection, each)
        found = rewrites.read_unsettled(connection)
    unknown = settle is not None and not chosen
    if unknown:
        say(f"{settle} is not a table whose log lacks a rewrite", file=sys.stderr)
    output({"data": found}, as_json, lambda: status.show_rewrites(found))
    return 1 if unknown else 0


@app.command("skip-transaction", epilog="Example: pipeline sources skip-transaction 0/1A2B3C8")
def sources_skip_transaction(
    context: typer.Context,
    position: Annotated[str, typer.Argument(metavar="LSN", help="LSN of its commit, as shown by `pipeline status`.")],
    yes: Yes = False,
) -> int:
    """Skip a transaction that the source cannot send. An event records this in its place."""
    from pipeline.operate.repair import skip_transaction

    with connected(context, "sources") as (config, connection):
        stop = skip_transaction.find(config, connection, position)
        confirm.loss([skip_transaction.consequence(stop)], position, yes)
        say(skip_transaction.request(config, connection, stop))
    return 0
