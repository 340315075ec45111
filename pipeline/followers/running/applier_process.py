"""One follower's process: applies the log to its database, and retries by itself after an error."""

from __future__ import annotations

import json
import logging
import socket
import sys

import psycopg
from setproctitle import setproctitle

from pipeline import logs
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.followers.running.following import FollowerLoop
from pipeline.followers.sharing.client import SharedLog
from pipeline.postgres import connections, waits
from pipeline.process.child import RETRY
from pipeline.process.signals import StopSignal, live_with_parent, read_settings_and_socket

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "pipeline.followers.running.applier_process")
"""Starts the process if there is no fork server."""


def main() -> int:
    """Apply the log with the settings in the first line of standard input until told to stop; returns the exit code."""
    given, line = read_settings_and_socket()
    if given is None:
        return RETRY
    found = json.loads(given)
    config = settings.from_json(found["settings"])
    logs.setup(config.log_level, config.log_format, "follower")
    stop = StopSignal(ignore_interrupt=True)
    waits.end_at_stop(stop)
    live_with_parent()
    try:
        _run(config, found["id"], found["name"], line, stop)
    except PipelineError as error:
        logger.warning("%s", error, extra={"action": "follower.failed"})
        return RETRY
    except Exception:
        logger.exception("unexpected error", extra={"action": "follower.failed"})
        return RETRY
    return 0


def _run(config: Config, follower: int, name: str, line: socket.socket | None, stop: StopSignal) -> None:
    setproctitle(f"pipeline: follower {name}")
    program = "pipeline applier"
    with (
        connections.connect(config.database, "pipeline database", name=program) as log,
        connections.connect(config.database, "pipeline database", name=f"{program} state") as state,
    ):
        try:
            shared = SharedLog(line) if line is not None else None
            FollowerLoop(config, log, state, follower, name, shared).run(stop)
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable(config.database, "pipeline database", error) from error


if __name__ == "__main__":
    sys.exit(main())
