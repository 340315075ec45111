"""`pipeline psql`: open a database of the embedded Postgres in psql."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Annotated, Literal

import typer

from pipeline.terminal.command import load

Database = Annotated[Literal["source", "pipeline"], typer.Argument(help="The database to open.")]
Arguments = Annotated[list[str] | None, typer.Argument(help="Arguments for psql, such as -c 'select 1'.")]


def psql(context: typer.Context, database: Database, arguments: Arguments = None) -> int:
    """Open a database of the embedded Postgres in psql, while `pipeline serve` runs."""
    from pipeline.errors import ConfigError, EmbeddedPostgresError
    from pipeline.postgres import databases
    from pipeline.postgres import psql as psql_line

    config = load(context, "psql")
    if not databases.is_embedded(config, database):
        line = psql_line.command(config.source if database == databases.SOURCE else config.database)
        raise ConfigError(f"the {database} database has a DSN, so it is not embedded; open it with: {line}")
    server = databases.embedded_server(config)
    if not server.running():
        where = f"the embedded Postgres in {server.directory} is not running"
        raise EmbeddedPostgresError(f"{where}: start `pipeline serve`, in this folder or with the same --data-dir")
    program = shutil.which("psql") or str(server.bin_dir / "psql")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores the signal, and psql would inherit that
    os.execv(program, [program, server.dsn(database), *(arguments or [])])  # noqa: S606 (no shell is wanted)
