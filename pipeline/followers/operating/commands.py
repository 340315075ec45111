"""The command `pipeline followers`: databases that a running server keeps equal to the source from the log."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.errors import FollowerError
from pipeline.printable import say, sql
from pipeline.terminal import json_values
from pipeline.terminal.command import Json, connected, load, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.config.settings import Config
    from pipeline.followers.operating.status import FollowerStatus
    from pipeline.postgres.connections import Connection

app = typer.Typer(help="Followers: databases that are kept equal to the source.", no_args_is_help=True)


class CopyOption(StrEnum):
    """The values of `--copy`."""

    SOURCE = "source"
    LOG = "log"
    NONE = "none"


class SchemaOption(StrEnum):
    """The values of `--schema`."""

    CREATE = "create"
    EXISTS = "exists"


class DdlOption(StrEnum):
    """The values of `--ddl`."""

    FOLLOW = "follow"
    STOP = "stop"


class RewriteOption(StrEnum):
    """The values of `--on-rewrite`."""

    COPY = "copy"
    STOP = "stop"


PROGRAM = "pipeline followers"
"""The `application_name` of its connections."""
DSN_FLAG = "--dsn"
"""The option whose value is hidden in lists of processes, because a user may give a password with it."""
Name = Annotated[str, typer.Argument(help="The follower's name.", show_default=False)]
NewName = Annotated[
    str | None,
    typer.Argument(help="The follower's name. Default: made of host, port and database.", show_default=False),
]
Dsn = Annotated[str, typer.Option(DSN_FLAG, help="The database, without a password.", show_default=False)]
Tables = Annotated[str | None, typer.Option(help="schema.table, comma separated, * matches anything. Default: all.")]
CopyFrom = Annotated[CopyOption, typer.Option("--copy", help="The source of the follower's first rows.")]
SchemaMode = Annotated[
    SchemaOption, typer.Option("--schema", help="Create tables that the follower lacks, or require them.")
]
OnDdl = Annotated[DdlOption, typer.Option("--ddl", help="What to do when the source's tables change.")]
Rewrites = Annotated[RewriteOption, typer.Option("--on-rewrite", help="What to do when rows change without events.")]
AsSql = Annotated[
    bool,
    typer.Option(
        "--sql", help="Add nothing; print SQL for an administrator that creates missing objects and grants rights."
    ),
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Empty tables that have rows before they are copied.")]

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="The followers' names.", show_default=False)]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer. Default: as long as it takes.")
]
Seq = Annotated[
    int,
    typer.Argument(
        min=1, help="The seq of any event of the transaction; `followers show` names one.", show_default=False
    ),
]
Named = Annotated[
    list[str], typer.Argument(metavar="TABLE...", help="schema.table, * matches anything.", show_default=False)
]
OfFollower = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE]...", help="Only these tables. Default: all of the follower.")
]


@app.command("add", epilog="Example: pipeline followers add reports --dsn postgresql://reports.internal/shop")
def followers_add(
    context: typer.Context,
    dsn: Dsn,
    name: NewName = None,
    tables: Tables = None,
    copy: CopyFrom = CopyOption.SOURCE,
    schema: SchemaMode = SchemaOption.CREATE,
    ddl: OnDdl = DdlOption.FOLLOW,
    on_rewrite: Rewrites = RewriteOption.COPY,
    truncate: Truncate = False,
    as_sql: AsSql = False,
    as_json: Json = False,
) -> int:
    """Register a database; a running server fills it and keeps it equal to the source.

    An unfit database is refused at once, and nothing is changed. The password may be in PGPASSFILE, in a service file
    or in PIPELINE_FOLLOWER_PASSWORD_<NAME>, here and where the server runs.
    """
    from pipeline.followers.registry import FollowerOptions

    patterns = tuple(part.strip() for part in (tables or "").split(",") if part.strip())
    given: dict[str, Any] = {"copy": copy.value, "schema": schema.value, "ddl": ddl.value}
    options = FollowerOptions(patterns, **given, on_rewrite=on_rewrite.value, truncate=truncate)
    with _adding(context) as (config, pipeline, source):
        from pipeline.followers.operating import adding

        if as_sql:
            for statement in adding.missing_sql(config, source, pipeline, name, dsn, options):
                print(sql(statement) if sys.stdout.isatty() else statement)
            return 0
        added = adding.add(config, source, pipeline, name, dsn, options)
    for warning in added.warnings:
        say(f"warning: {warning}", file=sys.stderr)
    values = {**json_values.as_json(added.follower), "warnings": added.warnings}
    output(values, as_json, lambda: say(_describe_added(added.follower)))
    return 0


@app.command("list", epilog="Example: pipeline followers list")
def followers_list(context: typer.Context, as_json: Json = False) -> int:
    """List the followers with their states, and how far each is behind the log."""
    from pipeline.followers.operating import status
    from pipeline.followers.operating.render import show_followers

    with connected(context, "followers") as (_, connection):
        found = status.list_followers(connection)
    output({"data": found}, as_json, lambda: show_followers(found))
    return 0


@app.command("show", epilog="Example: pipeline followers show reports")
def followers_show(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Show one follower: its state with the reason and the remedy, its tables and settings."""
    from pipeline.followers.operating import status
    from pipeline.followers.operating.render import show_follower

    with connected(context, "followers") as (_, connection):
        found = status.show(connection, name)
    output(found, as_json, lambda: show_follower(found))
    return 0


@app.command("wait", epilog="Example: pipeline followers wait reports --timeout 60")
def followers_wait(context: typer.Context, names: Names, timeout: Timeout = None, as_json: Json = False) -> int:
    """Wait until each follows all its tables and has everything that is committed at the source by now.

    Exit 1 if one of them is stopped, is paused before it has everything, keeps or lacks rows of a partition, or time is
    up.
    """
    from pipeline.followers.operating import waiting
    from pipeline.followers.operating.render import show_waited
    from pipeline.postgres import connections
    from pipeline.terminal import bars

    with (
        with_source(context) as (config, pipeline),
        connections.connect_promptly(config.source, "source", name=PROGRAM) as source,
        bars.waiting() as on_wait,
    ):
        found = waiting.wait(config, source, pipeline, names, timeout, on_wait)
    if found.reason is not None and not as_json:
        raise FollowerError(found.reason)
    output(found, as_json, lambda: show_waited(found))
    return 0 if found.ok else 1


@app.command("verify", epilog="Example: pipeline followers verify reports public.orders")
def followers_verify(context: typer.Context, name: Name, tables: OfFollower = None, as_json: Json = False) -> int:
    """Compare its tables with the source's by content, while both are written.

    Exit 1 if rows differ; names them by key: missing, extra, different.
    """
    from pipeline.followers.operating import verify
    from pipeline.followers.operating.follower_content import progress_bar, show_verified

    with with_source(context) as (config, pipeline), progress_bar() as on_step:
        found = verify.verify(config, pipeline, name, tables or (), on_step)
    output(found, as_json, lambda: show_verified(found))
    return 0 if found.ok else 1


@app.command("resync", epilog="Example: pipeline followers resync reports public.orders")
def followers_resync(context: typer.Context, name: Name, tables: Named, as_json: Json = False) -> int:
    """Copy tables again from the source, while other tables follow. Readers see the old rows until the copy is placed.

    Returns at once. A follower that stopped at a change of such a table continues.
    """
    from pipeline.followers.operating import resync
    from pipeline.followers.operating.render import show_resync

    with connected(context, "followers") as (_, connection):
        found = resync.resync(connection, name, tables)
    output(found, as_json, lambda: show_resync(found))
    return 0


@app.command("skip-transaction", epilog="Example: pipeline followers skip-transaction reports 1042")
def followers_skip_transaction(context: typer.Context, name: Name, seq: Seq, as_json: Json = False) -> int:
    """Skip the transaction at which the follower stopped, and continue. Its tables then lack those changes.

    The follower records the transaction in pipeline_follower.skipped.
    """
    from pipeline.followers.operating import skip_transaction
    from pipeline.followers.operating.render import show_skipped

    with connected(context, "followers") as (config, connection):
        found = skip_transaction.skip(config, connection, name, seq)
    output(found, as_json, lambda: show_skipped(found))
    return 0


@app.command("pause", epilog="Example: pipeline followers pause reports")
def followers_pause(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Pause a follower: nothing is applied to it, and the log is kept for it."""
    from pipeline.followers.operating import status

    return _change(context, status.pause, "paused", name, as_json)


@app.command("resume", epilog="Example: pipeline followers resume reports")
def followers_resume(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Resume a paused follower at its position."""
    from pipeline.followers.operating import status

    return _change(context, status.resume, "resumed", name, as_json)


@app.command("remove", epilog="Example: pipeline followers remove reports")
def followers_remove(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Remove a follower. Its database stays as it is, and the log is no longer kept for it."""
    from pipeline.followers.operating import status

    return _change(context, status.remove, "removed; its database stays as it is", name, as_json)


@contextmanager
def _adding(context: typer.Context) -> Iterator[tuple[Config, Connection, Connection]]:
    """Yield the settings, and connections to the pipeline database and to the source."""
    from pipeline.postgres import connections

    with (
        with_source(context) as (config, pipeline),
        connections.connect_promptly(config.source, "source", name=PROGRAM) as source,
    ):
        yield config, pipeline, source


@contextmanager
def with_source(context: typer.Context) -> Iterator[tuple[Config, Connection]]:
    """Yield the settings of a command that needs the source, too, and a connection to the pipeline database."""
    from pipeline.capture.source import missing_source
    from pipeline.postgres import connections, databases, migrations

    config = load(context, "followers")
    with (
        databases.existing(config) as config,
        connections.connect_promptly(config.database, "pipeline database", name=PROGRAM) as pipeline,
    ):
        if migrations.current_revision(pipeline) is None:
            raise FollowerError(missing_source.explain_missing_source(pipeline))
        migrations.require_head(pipeline)
        yield config, pipeline


def _change(
    context: typer.Context, change: Callable[[Connection, str], FollowerStatus], done: str, name: str, as_json: bool
) -> int:
    with connected(context, "followers") as (_, connection):
        found = change(connection, name)
    output(found, as_json, lambda: say(f'follower "{found.name}" {done}'))
    return 0


def _describe_added(found: FollowerStatus) -> str:
    why = f": {found.reason}" if found.reason else ""
    remedy = f"; {found.remedy}" if found.remedy else ""
    return f'follower "{found.name}" added; it is {found.state}{why}{remedy}'
