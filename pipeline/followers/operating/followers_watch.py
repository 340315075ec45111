"""The command `pipeline followers watch`: shows source and followers each second."""

from __future__ import annotations

import signal
import time

import typer

from pipeline.terminal.command import Json, load

EVERY = 1.0
"""Seconds between two reports."""


def watch(context: typer.Context, as_json: Json = False) -> int:
    """Show rows of each table, lag, rate and state of source and followers, each second, until Ctrl-C.

    Rows are counted up to 100,000; ~ marks larger numbers, which Postgres estimates. --json prints one line a second.
    """
    from pipeline.followers.operating.watch import FollowersWatch
    from pipeline.followers.operating.watched_followers import sections
    from pipeline.postgres import databases
    from pipeline.terminal import watching
    from pipeline.terminal.json_values import as_json as to_json

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` sends it; the cursor must come back then too
    config = load(context, "followers")
    with (
        databases.resolved(config, start=False) as config,
        FollowersWatch(config) as watched,
        watching.shown(EVERY, as_json, sections, to_json) as show,
    ):
        while True:
            began = time.monotonic()
            show(watched.read_state())
            time.sleep(max(EVERY - (time.monotonic() - began), 0))
