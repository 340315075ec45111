"""`pipeline dead-letters`: changes that could not be written to the log, kept with their cause."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.commands.context import Json, connected, output

app = typer.Typer(help="Changes that could not be written to the log, kept with their cause.", no_args_is_help=True)

Ids = Annotated[list[int] | None, typer.Argument(metavar="ID…", help="As `list` shows them.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All that are parked.")]
State = Annotated[str | None, typer.Option(help="Only those: parked, retrying, retried or discarded.")]


@app.command("list")
def letters_list(context: typer.Context, state: State = None, as_json: Json = False) -> int:
    """Each with its place in the source's history, why it could not be written, and what became of it."""
    from pipeline.cli.render import dead_letters as letter_report
    from pipeline.errors import ConfigError
    from pipeline.log import dead_letters

    if state is not None and state not in dead_letters.STATES:
        raise ConfigError(f"--state: expected one of {', '.join(dead_letters.STATES)}, not {state!r}")
    with connected(context, "dead-letters") as (_, connection):
        found = dead_letters.find(connection, state)
    output({"data": found}, as_json, lambda: letter_report.letters(found))
    return 0


@app.command("retry")
def letters_retry(context: typer.Context, ids: Ids = None, everything: All = False, as_json: Json = False) -> int:
    """Have them written at the head of the log, marked; exit 1 when one fails again. The server does it."""
    from pipeline.cli.render import dead_letters as letter_report
    from pipeline.operate.repair import retry_dead_letters

    wanted = _wanted(ids, everything)
    with connected(context, "dead-letters") as (_, connection):
        found = retry_dead_letters.retry(connection, wanted)
    values = {"data": found.letters, "server": found.server}
    output(values, as_json, lambda: letter_report.retried(found))
    return 1 if found.failed else 0


@app.command("discard")
def letters_discard(context: typer.Context, ids: Ids = None, everything: All = False, as_json: Json = False) -> int:
    """Give them up. They stay in pipeline.dead_letters for the record, and so do the events in their place."""
    from pipeline.operate import formatting
    from pipeline.operate.repair import retry_dead_letters

    wanted = _wanted(ids, everything)
    with connected(context, "dead-letters") as (_, connection):
        done = retry_dead_letters.discard(connection, wanted)
    output({"discarded": done}, as_json, lambda: print(f"{formatting.count(done, 'dead letter')} discarded"))
    return 0


def _wanted(ids: list[int] | None, everything: bool) -> list[int] | None:
    from pipeline.errors import ConfigError

    if bool(ids) == everything:
        raise ConfigError("give the ids that `pipeline dead-letters list` shows, or --all")
    return ids or None
