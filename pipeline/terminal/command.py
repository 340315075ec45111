"""Load the settings of a command, connect to the pipeline database, and print the result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline import logs
from pipeline.terminal import json_values

if TYPE_CHECKING:
    from pipeline.config.settings import Config
    from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load(context: typer.Context, role: str) -> Config:
    """Return the settings of this call; log lines name `role`. Raises ConfigError."""
    config: Config = context.obj()
    logs.setup(config.log_level, config.log_format, role)
    from pipeline.config import settings

    for name, similar in settings.unknown_variables().items():
        hint = f"did you mean {similar}?" if similar else "`pipeline settings` shows all settings"
        logger.warning("unknown setting %s; %s", name, hint, extra={"action": "config.unknown"})
    return config


@contextmanager
def connected(context: typer.Context, command: str) -> Iterator[tuple[Config, Connection]]:
    """Connect a command to the pipeline database, which must be at this version's revision.

    Raises SchemaError, DatabaseUnavailableError.
    """
    from pipeline.postgres import connections, databases, migrations

    with (
        databases.without_source(load(context, command)) as config,
        connections.connect_promptly(config.database, "pipeline database", name=f"pipeline {command}") as connection,
    ):
        migrations.require_head(connection)
        yield config, connection


def output(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print the value, which may contain dataclasses, as JSON; or let `show` print it for people."""
    if as_json:
        print(json.dumps(json_values.as_json(value), indent=2))
    else:
        show()
