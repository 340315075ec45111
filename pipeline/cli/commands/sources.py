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
    from pipeline.operate import known_sources

    with connected(context, "sources") as (_, connection):
        found = known_sources.collect(connection)
    output({"data": found}, as_json, lambda: status.show_sources(found))
    return 0


@app.command("adopt", epilog="Example: pipeline sources adopt --reread")
def sources_adopt(
    context: typer.Context,
    reread: Annotated[bool, typer.Option("--reread", help="Afterwards compare all tables with the log.")] = False,
    restored: Annotated[
        bool, typer.Option("--restored", help="The pipeline database was restored: never assign a seq a second time.")
    ] = False,
    upgraded: Annotated[
        bool, typer.Option("--upgraded", help="pg_upgrade made the source's cluster and kept the slot: no gap.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Accept the source as it is now, if the stored positions are not valid there. Stop the server first.

    Shows what the log will lack, then asks you to type the name of the source's database. A new epoch begins.
    With --reread, the next server compares all captured tables with the log and appends the rows that differ.
    With --restored, the log skips all seqs that readers may have seen, even if the positions are valid. Use it after
    you have restored the pipeline database and the source together.
    With --upgraded, the new epoch begins without a gap. It is refused if a captured table has another OID than before.
    """
    from pipeline.cli.render import losses
    from pipeline.operate.repair.adopt import adopt
    from pipeline.postgres import databases

    config = load(context, "sources")
    with databases.existing(config) as resolved:
        adopted = adopt(
            resolved,
            lambda gap: confirm.confirm_loss(losses.gap(gap, reread=reread), gap.database, yes),
            reread=reread,
            restored=restored,
            upgraded=upgraded,
        )
    changed = "the log skips the seqs that readers may have seen" if restored else "nothing was changed"
    unchanged = f"the stored positions are valid at this source; {changed}"
    if reread:
        unchanged += "; no table will be compared: for that use `pipeline backfill start TABLE --differences`"
    say(*(adopted.lines() if adopted else [unchanged]))
    return 0


@app.command("rewrites", epilog="Example: pipeline sources rewrites --settle public.orders")
def sources_rewrites(
    context: typer.Context,
    settle: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Remove this table, once all of its rows were written after the DDL."),
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
        say(f"{settle} is not in this list; nothing was removed", file=sys.stderr)
    output({"data": found}, as_json, lambda: status.show_rewrites(found))
    return 1 if unknown else 0


@app.command("skip-transaction", epilog="Example: pipeline sources skip-transaction 0/1A2B3C8")
def sources_skip_transaction(
    context: typer.Context,
    position: Annotated[
        str, typer.Argument(metavar="LSN", help="LSN of the transaction's commit, as shown by `pipeline status`.")
    ],
    yes: Yes = False,
) -> int:
    """Skip a transaction that the source cannot send. An event records this in its place."""
    from pipeline.operate.repair import skip_transaction

    with connected(context, "sources") as (config, connection):
        stop = skip_transaction.find(config, connection, position)
        confirm.confirm_loss([skip_transaction.consequence(stop)], position, yes)
        say(skip_transaction.request(config, connection, stop))
    return 0
