"""The command line: parse arguments, call one function per command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from setproctitle import setproctitle

from pipeline import logs
from pipeline.commands import consumers, dead_letters, exports, retention, routes, slots, sources
from pipeline.commands.context import Json, load, output
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.config import Config

app = typer.Typer(
    name="pipeline",
    help="Every committed change of a Postgres database as a row of sequin_events: in commit order, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, group in (
    ("slots", slots.app),
    ("sources", sources.app),
    ("routes", routes.app),
    ("consumers", consumers.app),
    ("dead-letters", dead_letters.app),
    ("export", exports.app),
):
    app.add_typer(group, name=name)
app.command()(retention.retention)


class Role(StrEnum):
    """What `serve --only` takes."""

    REPLICATION = "replication"
    SHUFFLE = "shuffle"
    SCHEDULE = "schedule"
    API = "api"


SECRET_FLAGS = ("--source-dsn", "--database-dsn", "--api-token")
"""Their values must not be seen in a list of processes."""
Only = Annotated[Role | None, typer.Option("--only", help="Run this role alone.")]

Reader = Annotated[str | None, typer.Option(help="Make this role, or bring it up to date: it may read the events.")]
Accept = Annotated[list[str] | None, typer.Option(help="Name of a finding to take for a warning, if it is an error.")]


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Settings file, instead of ./pipeline.toml.")] = None,
    source_dsn: Annotated[str | None, typer.Option(help="Database to replicate from. Default: embedded.")] = None,
    database_dsn: Annotated[str | None, typer.Option(help="Database for the events. Default: embedded.")] = None,
    source_id: Annotated[str | None, typer.Option(help="UUID for source_database_id. Default: made once.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Embedded Postgres, exports, logs. Default: .pipeline")] = None,
    slot: Annotated[str | None, typer.Option(help="Replication slot. Default: pipeline")] = None,
    publication: Annotated[str | None, typer.Option(help="Publication. Default: pipeline")] = None,
    tables: Annotated[str | None, typer.Option(help="schema.table list with *. Default: all")] = None,
    events_table: Annotated[str | None, typer.Option(help="Default: public.sequin_events")] = None,
    routes: Annotated[str | None, typer.Option(help="JSON list. Default: none")] = None,
    retention: Annotated[str | None, typer.Option(help="Age at which events are dropped: 7d. Default: none")] = None,
    on_poison: Annotated[str | None, typer.Option(help="What cannot be written: stop or park. Default: stop")] = None,
    catchup_threshold: Annotated[str | None, typer.Option(help="Lag for more slots: 64MB, off. Default: 1GB")] = None,
    catchup_interval: Annotated[str | None, typer.Option(help="Seconds between looks at the lag. Default: 1")] = None,
    catchup_max_slots: Annotated[str | None, typer.Option(help="Default: the cores, at most 4")] = None,
    export_dir: Annotated[Path | None, typer.Option(help="The lake. Default: exports in the data directory")] = None,
    export_schedule: Annotated[str | None, typer.Option(help="Cron in UTC, or off. Default: */5 * * * *")] = None,
    export_timeout: Annotated[str | None, typer.Option(help="Seconds a run may take. Default: 3600")] = None,
    spark_master: Annotated[str | None, typer.Option(help="Where Spark runs. Default: local[*]")] = None,
    http_host: Annotated[str | None, typer.Option(help="Default: 127.0.0.1")] = None,
    http_port: Annotated[str | None, typer.Option(help="Default: 12312")] = None,
    http_certificate: Annotated[Path | None, typer.Option(help="PEM file; HTTPS when set.")] = None,
    http_key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    http_origins: Annotated[str | None, typer.Option(help="Other origins whose pages may use the API.")] = None,
    api_token: Annotated[str | None, typer.Option(help="Bearer token for every endpoint but health.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. Default: info")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, text or json. Default: auto")] = None,
) -> None:
    """Every flag is also a PIPELINE_ variable and a key of pipeline.toml; flags win, then the environment."""
    flags = {name: value for name, value in locals().items() if name not in ("context", "config")}

    def load_settings() -> Config:
        from pipeline import config as settings

        return settings.load(config, **flags)

    context.obj = load_settings


@app.command()
def serve(context: typer.Context, only: Only = None) -> int:
    """Migrate, then replicate until stopped. Ctrl-C drains; a second Ctrl-C leaves at once."""
    from pipeline import serve as server

    return server.serve(load(context, "serve"), only.value if only else None)


@app.command()
def migrate(context: typer.Context, reader: Reader = None) -> int:
    """Bring the pipeline database to the newest revision; with --reader, a role for SQL readers too."""
    from pipeline import databases, db, schema
    from pipeline.operations import old_log

    with databases.resolved(load(context, "migrate")) as config:
        before = schema.current(config.database)
        schema.upgrade(config.database, config.events_table)
        with db.connect(config.database, "pipeline database", name="pipeline migrate") as connection:
            old_log.ensure(config, connection)
        after = schema.current(config.database)
        print(f"pipeline database: {before or 'empty'} → {after}" if before != after else f"already at {after}")
        if reader is not None:
            from pipeline.operations import reader_role

            print("\n".join(reader_role.ensure(config, reader)))
    return 0


@app.command()
def status(context: typer.Context, as_json: Json = False) -> int:
    """Positions, lag, counts, rates, roles, and what is not captured. Exit 1 when it is not replicating."""
    from pipeline import databases
    from pipeline.operations import report
    from pipeline.operations import status as operation

    with databases.resolved(load(context, "status"), start=False) as config:
        now = operation.collect(config)
    output(now.to_json(), as_json, lambda: report.status(now))
    return 1 if now.reasons else 0


@app.command()
def check(context: typer.Context, as_json: Json = False, accept: Accept = None) -> int:
    """Look at both databases before the first start: what is wrong, and what to do. Changes nothing."""
    from pipeline.operations import check as operation
    from pipeline.operations import report

    findings = operation.run(load(context, "check"), frozenset(accept or ()))
    output({"data": [vars(finding) for finding in findings]}, as_json, lambda: report.findings(findings))
    return 1 if any(finding.level == "error" for finding in findings) else 0


@app.command()
def verify(
    context: typer.Context,
    as_json: Json = False,
    from_seq: Annotated[int, typer.Option(min=1, help="Read from this seq on.")] = 1,
    range_rows: Annotated[int, typer.Option("--range", min=1, help="Rows one statement reads.")] = 500_000,
) -> int:
    """Check the log: order, whole transactions, nothing twice or missing. Exit 1 names the rows that break a rule."""
    from pipeline import databases
    from pipeline.operations import report
    from pipeline.operations import verify as operation

    config = load(context, "verify")
    with (
        databases.resolved(config, start=databases.embedded_server(config).data.is_dir()) as config,
        report.verifying() as on_range,
    ):
        found = operation.run(config, from_seq, range_rows, on_range)
    output(found.to_json(), as_json, lambda: report.verification(found))
    return 0 if found.ok else 1


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long the writers write.")] = 15.0,
    data_dir: Annotated[Path | None, typer.Option(help="A data directory of its own. Default: .pipeline/demo")] = None,
) -> int:
    """A shop's writers on an embedded Postgres, shown live; then every change is checked against their own record."""
    from pipeline import demo as show

    logs.setup("warning", "auto", "demo")
    return show.run(seconds, data_dir or Path(".pipeline") / "demo")


def main() -> int:
    """Run a command; 0 done, 1 failed or a difference found, 2 wrong use or setting, 130 interrupted."""
    setproctitle(" ".join(["pipeline", *_without_secrets(sys.argv[1:])]))
    try:
        with _plain_errors():
            status = int(app(standalone_mode=False) or 0)
            sys.stdout.flush()
            return status
    except PipelineError as error:
        print(f"pipeline: {error}", file=sys.stderr)
        return error.exit_code
    except typer.TyperException as error:  # without a command, the message is the help
        message = error.format_message()
        print(
            message if "\n" in message else f"pipeline: {message} `pipeline --help` shows what there is.",
            file=sys.stderr,
        )
        return 2
    except typer.Abort:
        return 130


@contextmanager
def _plain_errors() -> Iterator[None]:
    """One plain line also for what a database or the system refuses where nobody expected it."""
    try:
        yield
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipelineError("the output is closed; read all of it") from None
    except OSError as error:
        where = error.filename or "the system"
        raise PipelineError(f"{where}: {error.strerror or error}; put that right and try again") from error
    except Exception as error:
        from pipeline import db

        if (refusal := db.refusal(error)) is None:
            raise
        raise refusal from error


def _without_secrets(arguments: list[str]) -> list[str]:
    """The command line as others may see it."""
    shown = list(arguments)
    for place, argument in enumerate(arguments):
        flag, equals, _ = argument.partition("=")
        if flag in SECRET_FLAGS and equals:
            shown[place] = f"{flag}=***"
        elif argument in SECRET_FLAGS and place + 1 < len(shown):
            shown[place + 1] = "***"
    return shown
