"""What the demo stands on: no settings, a data directory to itself, a Postgres of its own."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from pipeline.config.settings import Config
from pipeline.errors import ConfigError
from pipeline.operate import status
from pipeline.postgres import databases
from pipeline.postgres.embedded import Server

LEFTOVER_TIMEOUT = 15.0
"""Seconds that the server of a demo that was killed gets to end."""


def forget_settings() -> None:
    """Neither our settings nor libpq's may lead to another database. For this process and its children."""
    for name in [name for name in os.environ if name.startswith(("PIPELINE_", "PG"))]:
        del os.environ[name]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One demo at a time in a data directory."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "demo.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot use {folder}: {error.strerror}; choose another --data-dir") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ConfigError(f"another demo runs in {folder}; wait for its end, or choose another --data-dir") from error
    finally:
        os.close(descriptor)


@contextmanager
def postgres(console: Console, config: Config) -> Iterator[tuple[Server, Config]]:
    """The embedded Postgres of the demo, stopped at the end also when a killed demo had left it running."""
    server = databases.embedded_server(config)
    found = not server.start()
    resolved = config.with_databases(server.dsn(databases.SOURCE), server.dsn(databases.PIPELINE))
    with ExitStack() as stack:
        stack.callback(server.stop)
        server.create_databases(databases.SOURCE, databases.PIPELINE)
        if found and _holder(resolved, 1):
            console.print("waiting for the server of an earlier run to end")
        if found and (holder := _holder(resolved, LEFTOVER_TIMEOUT)):
            stack.pop_all()  # somebody works with it
            raise ConfigError(f"the server {holder} runs on {config.data_dir}; stop it, or choose another --data-dir")
        yield server, resolved


def _holder(config: Config, seconds: float) -> str | None:
    """Which server still works on the pipeline database after so long."""
    deadline = time.monotonic() + seconds
    while held := [role for role in status.collect(config).roles if role.held]:
        if time.monotonic() > deadline:
            return held[0].server
        time.sleep(0.2)
    return None
