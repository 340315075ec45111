"""`pipeline status`: show the state of the server, once or repeatedly."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import psycopg
import typer

from pipeline.errors import ConfigError, PipelineError
from pipeline.terminal.command import Json, load, output

if TYPE_CHECKING:
    from pipeline.config.settings import Config
    from pipeline.operate.status import PipelineStatus
    from pipeline.operate.status_reader import StatusReader

EVERY = 2.0
"""Seconds between two updates of --watch."""
ANSWER_SECONDS = 10.0
"""Seconds in which the pipeline database must answer --watch, so that a frozen one is noticed soon."""

All = Annotated[
    bool, typer.Option("--all", help="Show positions, stages of lag, exports, retention, readers and roles, too.")
]
Watch = Annotated[bool, typer.Option("--watch", help=f"Look again every {EVERY:g} s, until Ctrl-C.")]
Interval = Annotated[float | None, typer.Option(min=0.1, help="Seconds between two updates of --watch.")]


def status(
    context: typer.Context,
    as_json: Json = False,
    everything: All = False,
    watch: Watch = False,
    interval: Interval = None,
) -> int:
    """Show what is wrong, then the six most important lines. Exit 1 if nothing replicates."""
    from pipeline.cli.render.status import show_status
    from pipeline.operate.status_reader import StatusReader
    from pipeline.postgres import databases

    if interval is not None and not watch:
        raise ConfigError("--interval is the time between two updates of --watch; add --watch")
    config = load(context, "status")
    if watch:
        return _watch(config, as_json, interval or EVERY, everything=everything)
    with databases.resolved(config, start=False) as config:
        now = StatusReader().read(config)
    output(now.to_json(), as_json, lambda: show_status(now, everything=everything))
    return 0 if now.replicating else 1


def _watch(config: Config, as_json: bool, seconds: float, *, everything: bool) -> int:
    from pipeline.cli.render.status import sections
    from pipeline.operate.status import PipelineStatus
    from pipeline.operate.status_reader import StatusReader
    from pipeline.terminal import watching

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` sends it; the cursor must come back then too
    with watching.shown(seconds, as_json, partial(sections, everything=everything), PipelineStatus.to_json) as show:
        reader = StatusReader()
        while True:
            show(_read_status(config, reader))
            time.sleep(seconds)


def _read_status(config: Config, reader: StatusReader) -> PipelineStatus:
    """Return the status now; if the database does not answer, a status that says why."""
    from pipeline import refusals
    from pipeline.operate import status
    from pipeline.postgres import databases

    try:
        with databases.resolved(config, start=False) as resolved:
            return reader.read(resolved, ANSWER_SECONDS)
    except PipelineError as error:
        return status.PipelineStatus(reasons=[str(error)])
    except psycopg.Error as error:
        return status.PipelineStatus(reasons=[str(refusals.for_command(error))])
