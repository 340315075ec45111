"""The role `followers` in its own process: keeps one process running for each registered follower."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

from pipeline.config.settings import Config
from pipeline.followers import registry
from pipeline.followers.sharing.server import SharedReading
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from pipeline.process.child import POLL, ChildProcess, Launch
from pipeline.process.children import end_all
from pipeline.process.signals import StopSignal

LOOK_SECONDS = 1.0
"""Seconds between two checks for followers that were added or removed."""
END_SECONDS = 10.0
"""Seconds that an applier has to finish its batch."""


def run_role(
    config: Config, connection: Connection, stop: StopSignal, launch: Launch, report: Callable[..., None]
) -> None:
    """Run until told to stop. `connection` holds the role; `launch` starts a process of `applier_process`."""
    with role_locks.keep_alive(connection, lambda _: None):  # the next use of a broken connection raises
        report("running")
        appliers = dict[int, ChildProcess]()
        reading = SharedReading(partial(_connect, config))
        try:
            looks, count = round(LOOK_SECONDS / POLL), 0
            while not stop:
                if count % looks == 0:
                    _match_registry(appliers, connection, config, launch, reading)
                count += 1
                for follower in list(appliers):
                    if not _keep_running(appliers[follower]):
                        del appliers[follower]
                stop.wait(POLL)
        finally:
            end_all(appliers.values(), END_SECONDS)
            reading.close()


def _connect(config: Config) -> Connection:
    return connections.connect(config.database, "pipeline database", name="pipeline followers reading")


def _match_registry(
    appliers: dict[int, ChildProcess], connection: Connection, config: Config, launch: Launch, reading: SharedReading
) -> None:
    """Make a process for each new follower, and ask the processes of removed followers to end."""
    registered = {each.id: each.name for each in registry.find(connection)}
    for follower, name in registered.items():
        if follower not in appliers:
            settings = json.dumps({"id": follower, "name": name, "settings": config.to_json()})
            appliers[follower] = ChildProcess(f"follower {name}", launch, settings, reading.open_socket)
    for follower in appliers.keys() - registered.keys():
        appliers[follower].retire(END_SECONDS)


def _keep_running(applier: ChildProcess) -> bool:
    """Start a process that does not run; returns False if it has ended and is no longer needed."""
    code = applier.ended()
    if code is not None and (code == 0 or applier.retiring or not applier.start_again(code)):
        applier.forget()
        return False
    if applier.process is None and time.monotonic() >= applier.restart_at:
        applier.start()
    return True
