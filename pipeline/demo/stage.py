"""The environment of the demo: its own settings, data directory and Postgres."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.demo import roles
from pipeline.errors import ConfigError
from pipeline.operate import status
from pipeline.postgres import databases
from pipeline.postgres.embedded import EmbeddedServer

LEFTOVER_TIMEOUT = 15.0
"""Seconds that the server of a killed demo may take to end."""


def forget_settings() -> None:
    """Remove the settings of pipeline and libpq, which may name another database, for this process and its children."""
    for name in [name for name in os.environ if name.startswith(("PIPELINE_", "PG"))]:
        del os.environ[name]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Allow one demo at a time in a data directory."""
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
def postgres(console: Console, config: Config) -> Iterator[tuple[EmbeddedServer, Config]]:
    """Run the embedded Postgres of the demo, with its roles; stop it at the end, even if a killed demo left it.

    Yields the settings of the server. They are also in a file, for `pipeline --config`.
    """
    server = databases.embedded_server(config)
    found = not server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        server.create_databases(databases.SOURCE, databases.PIPELINE)
        roles.make(server)
        given = {"data_dir": str(config.data_dir), **roles.dsns(server)}
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in given.items()]
        settings_file(config).write_text("".join(lines), "utf-8")
        resolved = settings.from_json(json.dumps({**given, "database_dsn": server.dsn(databases.PIPELINE)}))
        if found and _holder(resolved, 1):
            console.print("waiting for the server of an earlier run to end")
        if found and (holder := _holder(resolved, LEFTOVER_TIMEOUT)):
            stack.pop_all()  # another server uses it
            raise ConfigError(f"the server {holder} runs on {config.data_dir}; stop it, or choose another --data-dir")
        yield server, resolved


def settings_file(config: Config) -> Path:
    """Return the file of the settings with which the server runs on the demo's data."""
    return config.data_dir / "pipeline.toml"


def _holder(config: Config, seconds: float) -> str | None:
    """Return the server that still uses the pipeline database after `seconds`; None if no server does."""
    deadline = time.monotonic() + seconds
    while held := [role for role in status.collect(config).roles if role.held]:
        if time.monotonic() > deadline:
            return held[0].server
        time.sleep(0.2)
    return None
