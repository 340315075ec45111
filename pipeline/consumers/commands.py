"""`pipeline consumers`: create, show and change consumers, in the pipeline database; no server is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, LiteralString

import typer

from pipeline.printable import in_json, say
from pipeline.terminal.command import Json, connected, output

if TYPE_CHECKING:
    from pipeline.errors import PipelineError
    from pipeline.postgres.connections import Connection

app = typer.Typer(help="Consumers: queues of changed rows, and positions in the log.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The consumer's name.", show_default=False)]
CommaSeparated = Annotated[str | None, typer.Option(help="Comma separated; default: all.")]
START_HELP = "now, beginning, or a seq after which to begin."


@app.command("list", epilog="Example: pipeline consumers list")
def consumers_list(context: typer.Context, as_json: Json = False) -> int:
    """List the consumers with their pending and delivered items, and how many seqs they are behind."""
    from pipeline.consumers import status
    from pipeline.consumers.render import show_consumers

    with _connected(context) as connection:
        found = status.find_consumers(connection)
    output({"data": found}, as_json, lambda: show_consumers(found))
    return 0


@app.command("create", epilog="Example: pipeline consumers create mailer --tables public.orders --start beginning")
def consumers_create(
    context: typer.Context,
    name: Name,
    kind: Annotated[str, typer.Option(help="records (a queue) or cursor (a position).")] = "records",
    tables: CommaSeparated = None,
    actions: CommaSeparated = None,
    events_table: Annotated[
        str | None, typer.Option(help="The events table to read, if not the default one.", show_default=False)
    ] = None,
    start: Annotated[str, typer.Option(help=START_HELP)] = "now",
    group_by: Annotated[str | None, typer.Option(help="Columns; one item of a group is in flight at a time.")] = None,
    collapse: Annotated[
        bool, typer.Option(help="An item is a row with its last change; otherwise each change is an item.")
    ] = True,
    visibility: Annotated[float, typer.Option(help="Seconds until an unacknowledged item is redelivered.")] = 30.0,
    max_deliveries: Annotated[
        int | None, typer.Option(help="Deliveries after which an item becomes a dead letter. Default: no limit")
    ] = None,
    max_unacknowledged: Annotated[
        int | None, typer.Option(help="The most items in flight at a time. Default: no limit")
    ] = None,
    as_json: Json = False,
) -> int:
    """Create a consumer."""
    given: dict[str, Any] = {
        "kind": kind,
        "tables": _split_list(tables) or [],
        "actions": _split_list(actions) or [],
        "events_table": events_table,
        "start": start,
        "group_by": _split_list(group_by),
        "collapse": collapse,
        "visibility": visibility,
        "max_deliveries": max_deliveries,
        "max_unacknowledged": max_unacknowledged,
    }
    return _change(context, "create_consumer", "created", name, as_json, **given)


@app.command("show", epilog="Example: pipeline consumers show mailer")
def consumers_show(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Show the settings and the status of a consumer."""
    from pipeline.consumers import status
    from pipeline.consumers.render import show_consumer

    with _connected(context) as connection:
        found = status.find_consumers(connection, name)
    if not found:
        raise _unknown_consumer(name)
    output(found[0], as_json, lambda: show_consumer(found[0]))
    return 0


@app.command("delete", epilog="Example: pipeline consumers delete mailer")
def consumers_delete(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Delete a consumer, with its unacknowledged items. The log stays."""
    return _change(context, "drop_consumer", "deleted", name, as_json)


@app.command("pause", epilog="Example: pipeline consumers pause mailer")
def consumers_pause(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Deliver no more items to a consumer until it is resumed; changes are still kept for it."""
    return _change(context, "pause_consumer", "paused", name, as_json)


@app.command("resume", epilog="Example: pipeline consumers resume mailer")
def consumers_resume(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Deliver items to a paused consumer again."""
    return _change(context, "resume_consumer", "resumed", name, as_json)


@app.command("reset", epilog="Example: pipeline consumers reset mailer --start beginning")
def consumers_reset(
    context: typer.Context,
    name: Name,
    start: Annotated[str, typer.Option(help=START_HELP)] = "beginning",
    as_json: Json = False,
) -> int:
    """Start a consumer again at another place in the log; its unacknowledged items are forgotten."""
    return _change(context, "reset_consumer", "reset", name, as_json, start=start)


@app.command("dead-letters", epilog="Example: pipeline consumers dead-letters mailer --retry")
def consumers_dead_letters(
    context: typer.Context,
    name: Name,
    retry: Annotated[bool, typer.Option("--retry", help="Put the dead letters back into the queue.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Delete the dead letters.")] = False,
    seqs: Annotated[list[int] | None, typer.Option("--seq", help="Only this dead letter; can be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most dead letters to show.")] = 100,
    as_json: Json = False,
) -> int:
    """Show, retry or discard the dead letters: items that were delivered too often."""
    from pipeline.consumers import status
    from pipeline.consumers.render import show_dead_letters
    from pipeline.errors import ConfigError

    if retry and discard:
        raise ConfigError("--retry and --discard exclude each other: use one of them")
    if seqs and not (retry or discard):
        raise ConfigError("--seq selects dead letters to --retry or to --discard: use it with one of these")
    with _connected(context) as connection:
        if not status.find_consumers(connection, name):
            raise _unknown_consumer(name)
        if retry or discard:
            change: LiteralString = "retry_dead" if retry else "discard_dead"
            count = status.change_consumer(connection, change, name=name, seqs=seqs or None)
            done = "put back" if retry else "discarded"
            output({"count": count}, as_json, lambda: say(f"{count} dead letters of {name} {done}"))
            return 0
        found = status.list_dead_letters(connection, name, limit)
    if as_json:  # the texts of Postgres, so that no digit is lost
        print(in_json(f'{{"data": [{", ".join(letter["letter"] for letter in found)}]}}'))
    else:
        show_dead_letters(name, found)
    return 0


def _change(context: typer.Context, change: LiteralString, done: str, name: str, as_json: bool, **given: Any) -> int:
    """Change a consumer and report it; with JSON print its status after the change, or before it if it was deleted."""
    from pipeline.consumers import status

    with _connected(context) as connection, connection.transaction():
        before = status.find_consumers(connection, name)
        if not before and change != "create_consumer":
            raise _unknown_consumer(name)
        status.change_consumer(connection, change, name=name, **given)
        found = (status.find_consumers(connection, name) or before)[0]
    output(found, as_json, lambda: say(f"consumer {json.dumps(name)} {done}"))
    return 0


def _unknown_consumer(name: str) -> PipelineError:
    """Return the error for a wrong name. Its remedy is not to create a consumer: the user wants to change one."""
    from pipeline.errors import UnknownConsumerError

    return UnknownConsumerError(f'there is no consumer "{name}"; `pipeline consumers list` shows all')


@contextmanager
def _connected(context: typer.Context) -> Iterator[Connection]:
    """Yield a connection; report errors that SQL functions raise with their messages."""
    import psycopg

    from pipeline import refusals

    with connected(context, "consumers") as (_, connection):
        try:
            yield connection
        except psycopg.Error as error:
            if (refusal := refusals.from_sqlstate(error)) is None:
                raise
            raise refusal from error


def _split_list(given: str | None) -> list[str] | None:
    return None if given is None else [part.strip() for part in given.split(",") if part.strip()]
