"""`pipeline dead-letters`: changes that could not be written to the log, kept with their cause."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.printable import say
from pipeline.terminal.command import Json, connected, output

app = typer.Typer(help="Changes that could not be written to the log, kept with their cause.", no_args_is_help=True)

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID…", help="Ids that `pipeline dead-letters list` shows.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All parked ones.")]
State = Annotated[
    str | None, typer.Option(help="List only those in this state: parked, retrying, retried or discarded.")
]


@app.command("list", epilog="Example: pipeline dead-letters list --state parked")
def dead_letters_list(context: typer.Context, state: State = None, as_json: Json = False) -> int:
    """List changes that could not be written: their position at the source, cause and state."""
    from pipeline.cli.render.dead_letters import show_dead_letters
    from pipeline.errors import ConfigError
    from pipeline.log import dead_letters

    if state is not None and state not in dead_letters.STATES:
        raise ConfigError(f"--state: expected one of {', '.join(dead_letters.STATES)}, not {state!r}")
    with connected(context, "dead-letters") as (_, connection):
        found = dead_letters.find(connection, state)
    output({"data": found}, as_json, lambda: show_dead_letters(found))
    return 0


@app.command("retry", epilog="Example: pipeline dead-letters retry 12 13")
def dead_letters_retry(context: typer.Context, ids: Ids = None, everything: All = False, as_json: Json = False) -> int:
    """Let the server write these changes again, as the newest events, with a mark. Exit 1 if one fails again."""
    from pipeline.cli.render.dead_letters import show_retried
    from pipeline.operate.repair import retry_dead_letters

    wanted = _wanted(ids, everything)
    with connected(context, "dead-letters") as (_, connection):
        found = retry_dead_letters.retry(connection, wanted)
    values = {"data": found.letters, "server": found.server}
    output(values, as_json, lambda: show_retried(found))
    return 1 if found.failed else 0


@app.command("discard", epilog="Example: pipeline dead-letters discard --all")
def dead_letters_discard(
    context: typer.Context, ids: Ids = None, everything: All = False, as_json: Json = False
) -> int:
    """Mark these changes as given up. Their rows in pipeline.dead_letters and the events in their place stay."""
    from pipeline.operate.repair import retry_dead_letters
    from pipeline.terminal import drawing

    wanted = _wanted(ids, everything)
    with connected(context, "dead-letters") as (_, connection):
        done = retry_dead_letters.discard(connection, wanted)
    output({"discarded": done}, as_json, lambda: say(f"{drawing.count(done, 'dead letter')} discarded"))
    return 0


def _wanted(ids: list[int] | None, everything: bool) -> list[int] | None:
    from pipeline.errors import ConfigError

    if bool(ids) == everything:
        raise ConfigError("give the ids that `pipeline dead-letters list` shows, or --all")
    return ids or None
