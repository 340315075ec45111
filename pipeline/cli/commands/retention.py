"""`pipeline retention`: drop events that are old enough now, or show which events would be dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.printable import say
from pipeline.terminal import confirm, json_values
from pipeline.terminal.command import Json, connected, output
from pipeline.terminal.confirm import Yes

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be dropped.")]
Release = Annotated[Path | None, typer.Option("--release-lake", help="Stop keeping events for exports to this lake.")]


def retention(
    context: typer.Context,
    dry_run: DryRun = False,
    release_lake: Release = None,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Drop now the events that are older than PIPELINE_RETENTION, as the server does regularly.

    --release-lake drops nothing: retention then no longer keeps events for this lake. Asks you to type its address.
    """
    from pipeline.cli.render import losses
    from pipeline.cli.render.retention import show_dry_run, show_outcome
    from pipeline.errors import ConfigError
    from pipeline.operate import retention

    with connected(context, "retention") as (config, connection):
        if release_lake is not None:
            folder = str(release_lake.expanduser().absolute())
            if lacking := retention.lacking(connection, config, folder):
                confirm.confirm_loss([losses.lake(lacking)], folder, yes)
            retention.release_lake(connection, folder)
            say(f"retention no longer waits for exports to {release_lake}")
            return 0
        if config.retention_seconds is None:
            raise ConfigError("PIPELINE_RETENTION is none: nothing is ever dropped; set it, for instance to 7d")
        found = None if dry_run else retention.run(config, lambda: False)
        now = retention.read(config, connection)
        if now is None:
            raise ConfigError(f"the events table {config.events_table} does not exist; correct PIPELINE_EVENTS_TABLE")
    values = {**json_values.as_json(now), "dropped": found}
    output(values, as_json, lambda: show_outcome(found, now) if found else show_dry_run(now))
    return 0
