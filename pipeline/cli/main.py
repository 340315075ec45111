"""The command line: parse arguments, call one function per command."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from setproctitle import setproctitle

from pipeline import logs
from pipeline.cli import flags, settings_list
from pipeline.cli.commands import dead_letters, init, psql, retention, routes, slots, sources, status, verify
from pipeline.config import file as config_file
from pipeline.config import settings
from pipeline.consumers import commands
from pipeline.errors import ConfigError, PipelineError
from pipeline.exports import commands as exports
from pipeline.followers.operating import commands as followers
from pipeline.followers.operating import followers_release, followers_watch
from pipeline.printable import say
from pipeline.snapshots import commands as backfills
from pipeline.terminal.command import Json, load, output
from pipeline.version import installed_version

logger = logging.getLogger(__name__)

START, KEEP, READ, LAKE = "Run the server", "Look after the log", "Serve its readers", "The lake"
"""The panels of `pipeline --help`."""

app = typer.Typer(
    name="pipeline",
    help="""\
Every committed change of a Postgres database as a row of sequin_events: in commit order, exactly once.

Start here: check, serve, status. The settings, shown by `pipeline settings`, are options of every command.
""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for name, group, panel in (
    ("slots", slots.app, KEEP),
    ("sources", sources.app, KEEP),
    ("routes", routes.app, KEEP),
    ("backfill", backfills.app, KEEP),
    ("dead-letters", dead_letters.app, KEEP),
    ("consumers", commands.app, READ),
    ("followers", followers.app, READ),
    ("export", exports.app, LAKE),
):
    app.add_typer(group, name=name, rich_help_panel=panel)
followers.app.command(epilog="Example: pipeline followers release reports --sequences")(followers_release.release)
followers.app.command(epilog="Example: pipeline followers watch")(followers_watch.watch)
app.command(rich_help_panel=START, epilog="Example: pipeline init --config staging.toml")(init.init)
app.command(rich_help_panel=START, epilog="Example: pipeline settings")(settings_list.settings)
app.command(rich_help_panel=KEEP, epilog="Example: pipeline retention --dry-run")(retention.retention)
app.command(rich_help_panel=START, epilog="Example: pipeline status --watch")(status.status)
app.command(rich_help_panel=KEEP, epilog="Example: pipeline verify public.orders --content")(verify.verify)
app.command(
    rich_help_panel=START,
    epilog="Example: pipeline psql source -c 'table orders'",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)(psql.psql)

PROGRAM = "pipeline"
"""The command's name for shell completion, also if the program was started by another path."""
_COMPLETION_VARIABLE = f"_{PROGRAM.upper()}_COMPLETE"
_LOG_FORMAT = "log_format"


class RoleName(StrEnum):
    """A role that `serve --only` can run alone."""

    REPLICATION = "replication"
    SHUFFLE = "shuffle"
    SNAPSHOT = "snapshot"
    SCHEDULE = "schedule"
    FOLLOWERS = "followers"
    API = "api"
    GRPC = "grpc"


Only = Annotated[RoleName | None, typer.Option("--only", help="Run only this role.")]

Example = Annotated[
    bool, typer.Option("--example", help="Create three tables of a shop if the embedded source is empty.")
]
Reader = Annotated[str | None, typer.Option(help="Create or update this role, which may read the events.")]
Accept = Annotated[list[str] | None, typer.Option(help="Name of a finding to treat as a warning if it is an error.")]
Sql = Annotated[bool, typer.Option("--sql", help="Print the missing SQL instead, for an administrator to run.")]


class CureTarget(StrEnum):
    """A database for which `check --at` prints SQL."""

    SOURCE = "source"
    PIPELINE = "pipeline"


Roles = Annotated[
    str | None,
    typer.Option(
        metavar="ROLE[,ROLE]",
        help="With --sql: grant what these source roles lack. The first replicates, the second reads rows; one: both.",
    ),
]
At = Annotated[CureTarget | None, typer.Option("--at", help="With --sql: only the statements for this database.")]


def _show_version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # a shell that asks for completions does not want it
        say(f"pipeline {installed_version()}")
        raise typer.Exit


@app.callback()
@flags.accepted_by
def options(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Settings file, instead of ./pipeline.toml.")] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
    **given: Any,
) -> None:
    """Every flag is also a PIPELINE_ variable and a key of pipeline.toml. A flag overrides both."""
    context.obj = partial(settings.load, config, **given)


@app.command(
    rich_help_panel=START, epilog="Example: pipeline serve --source-dsn postgresql://localhost/shop --slot shop"
)
def serve(context: typer.Context, only: Only = None, accept: Accept = None, example: Example = False) -> int:
    """Migrate, then replicate until stopped. Ctrl-C drains; a second Ctrl-C exits at once.

    Refuses to start if `pipeline check` reports an error that needs your action.
    """
    from pipeline.server import serve

    return serve.serve(load(context, "serve"), only.value if only else None, accept or (), with_example=example)


@app.command(rich_help_panel=START, epilog="Example: pipeline migrate --reader reporting")
def migrate(context: typer.Context, reader: Reader = None) -> int:
    """Migrate the pipeline database to the newest revision; with --reader, create a role for SQL readers too."""
    from pipeline.operate.preflight import legacy_log
    from pipeline.postgres import connections, databases, migrations

    with databases.resolved(databases.source_left_out(load(context, "migrate"))) as config:
        before = migrations.current(config.database)
        migrations.upgrade(config.database, config.events_table)
        with connections.connect(config.database, "pipeline database", name="pipeline migrate") as connection:
            legacy_log.ensure(config, connection)
        after = migrations.current(config.database)
        say(f"pipeline database: {before or 'empty'} → {after}" if before != after else f"already at {after}")
        if reader is not None:
            from pipeline.operate.repair import reader_role

            say(*reader_role.ensure(config, reader))
    return 0


@app.command(rich_help_panel=START, epilog="Example: pipeline health --ready")
def health(
    context: typer.Context,
    only: Annotated[RoleName | None, typer.Option("--only", help="The role that the server runs alone.")] = None,
    ready: Annotated[bool, typer.Option("--ready", help="Also check that the server replicates.")] = False,
) -> int:
    """Check if the running server is alive, for HEALTHCHECK and probes. Exit 1 if it is not."""
    from pipeline.cli import health

    config = load(context, "health")
    found = {name: getattr(config, name) for name in health.DEFAULTS}
    return health.run(found, only.value if only else None, ready=ready)


@app.command(rich_help_panel=START, epilog="Example: pipeline check --sql --at source")
def check(
    context: typer.Context,
    as_json: Json = False,
    accept: Accept = None,
    as_sql: Sql = False,
    at: At = None,
    roles: Roles = None,
) -> int:
    """Check both databases before the first start: what is wrong, and how to fix it. Changes nothing."""
    from pipeline.cli.render import cures
    from pipeline.cli.render.status import show_findings
    from pipeline.errors import ConfigError
    from pipeline.operate.preflight import check, role_sql

    if as_sql and as_json:
        raise ConfigError("--sql and --json exclude each other: use one of them; JSON has the statements as sql")
    if at and not as_sql:
        raise ConfigError("--at selects the statements of --sql: use it with that")
    if roles and not as_sql:
        raise ConfigError("--roles names the roles that --sql prints: use it with that")
    if roles:
        found = check.missing_roles(load(context, "check"), role_sql.parse(roles))
        return cures.show(found, at.value if at else None)
    findings = check.run(load(context, "check"), frozenset(accept or ()))
    if as_sql:
        return cures.show(findings, at.value if at else None)
    output({"data": findings}, as_json, lambda: show_findings(findings))
    return 1 if any(finding.level == "error" for finding in findings) else 0


@app.command(rich_help_panel=START, epilog="Example: pipeline demo --seconds 30 --followers 1")
def demo(
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long the writers write.")] = 15.0,
    data_dir: Annotated[Path | None, typer.Option(help="The demo's data directory. Default: .pipeline/demo")] = None,
    followers: Annotated[int, typer.Option(min=0, max=9, help="Databases that follow the shop, each a Postgres.")] = 0,
) -> int:
    """A shop's writers on an embedded Postgres, shown live; then every change is checked against their records.

    --followers keeps N databases equal to the shop, and compares all of them at the end.
    """
    from pipeline import demo

    logs.setup("warning", "auto", "demo")
    return demo.run(seconds, data_dir or Path(".pipeline") / "demo", followers)


@cache
def parser() -> Any:
    """Return the click command of the whole program. Building it takes longer than most commands."""
    return _program()


def _program() -> Any:
    program: Any = typer.main.get_command(app)
    for option in program.params:
        option.hidden = option.hidden or option.name in ("install_completion", "show_completion")
    return program


def main() -> int:
    """Run a command; 0: done, 1: failed or a difference found, 2: wrong usage or setting, 130: interrupted."""
    setproctitle(
        " ".join(["pipeline", *flags.without_secrets(sys.argv[1:], (*flags.SECRET_FLAGS, followers.DSN_FLAG))])
    )
    if _completion_is_wanted():
        program = _program()  # a separate one, since it is changed
        _add_settings_to_commands(program)
    else:
        program = parser()
    before, command = flags.split_arguments(sys.argv[1:], program)
    try:
        with _plain_errors():
            status = int(program(before + command, PROGRAM, standalone_mode=False) or 0)
            sys.stdout.flush()
            return status
    except PipelineError as error:
        _report_failure(str(error), before, command, getattr(error, "__notes__", ()))
        return error.exit_code
    except typer.TyperException as error:  # without a command, the message is the help
        message = error.format_message().replace(": Value error, ", ": ", 1)  # words of Pydantic
        message = flags.without_passwords(message)  # it may repeat an argument that was meant for --dsn
        if "\n" in message:
            print(message, file=sys.stderr)
        else:
            _report_failure(f"{message} See `pipeline --help`.", before, command)
        return 2
    except typer.Abort:
        return 130
    except Exception:
        if _log_failure(before, command):
            return 1
        raise


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Report unexpected errors of a database or the system in one plain line, too."""
    try:
        yield
    except BrokenPipeError:  # the program that reads our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipelineError("the output was closed before all was written; read it to its end") from None
    except OSError as error:
        where = error.filename or "the system"
        raise PipelineError(f"{where}: {error.strerror or error}; fix that and try again") from error
    except Exception as error:
        from pipeline import refusals

        if (refusal := refusals.for_command(error)) is None:
            raise
        raise refusal from error


def _completion_is_wanted() -> bool:
    """True if a shell asks for completions instead of running a command."""
    return _COMPLETION_VARIABLE in os.environ


def _add_settings_to_commands(program: Any) -> None:
    """Add the settings' flags to every command of the program, since users may write them after the command.

    Only for completion and help: before a command runs, `flags.split_arguments` moves these flags to the front.
    """
    settings = [each for each in program.params if each.expose_value]
    for each in settings:
        each.hidden = False
    groups = [program]
    while groups:
        for command in groups.pop().commands.values():
            own = {name for each in command.params for name in each.opts}
            command.params += [each for each in settings if own.isdisjoint(each.opts)]
            if hasattr(command, "commands"):
                groups.append(command)


def _report_failure(text: str, before: Sequence[str], command: Sequence[str], notes: Sequence[str] = ()) -> None:
    """Print or log why a command failed, then the lines in `notes`.

    `before` and `command`: the arguments, as `flags.split_arguments` returns them.
    """
    if _is_server(command) and _log_format(before) == "json":
        logs.setup("error", "json", "serve")
        logger.error("%s", text, extra={"action": "serve.failed"})
    else:
        say(f"pipeline: {text}", *notes, file=sys.stderr)


def _log_failure(before: Sequence[str], command: Sequence[str]) -> bool:
    """Log the unexpected error that is being handled, if a program reads the log; False if a person does."""
    if not _is_server(command) or _log_format(before) != "json":
        return False
    logger.exception("unexpected error", extra={"action": "serve.failed"})
    return True


def _is_server(command: Sequence[str]) -> bool:
    """True if the command is `serve`, whose errors programs may read. People read the errors of all other commands."""
    return next((each for each in command if not each.startswith("-")), None) == "serve"


def _log_format(before: Sequence[str]) -> str | None:
    """Return the log format that the user has set; None if unset. Errors in other settings are ignored.

    `auto` counts as text: unless the user chose a format, an error is for the person who has just started the server.
    """
    given = flags.last_value(before, flags.name_of(_LOG_FORMAT)) or os.environ.get(settings.variable(_LOG_FORMAT))
    if given is not None:
        return given
    file = flags.last_value(before, "--config")
    try:
        found = config_file.read(Path(file) if file else None, list(settings.Config.model_fields)).get(_LOG_FORMAT)
    except ConfigError:
        return None
    return found if isinstance(found, str) else None
