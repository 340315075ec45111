"""Which two databases to use: those of the DSNs, or databases of the embedded Postgres in the data directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pipeline.config.settings import Config
from pipeline.errors import ConfigError
from pipeline.postgres.embedded import EmbeddedServer

SOURCE, PIPELINE = "source", "pipeline"


def needs_embedded(config: Config) -> bool:
    """Whether a DSN is missing, so that the embedded Postgres is used."""
    return config.source_dsn is None or config.database_dsn is None


def embedded_server(config: Config) -> EmbeddedServer:
    """The embedded Postgres of these settings, running or not."""
    return EmbeddedServer(embedded_directory(config))


def embedded_directory(config: Config) -> Path:
    """Return the absolute path of the embedded Postgres, whether it exists or not."""
    return config.data_dir.absolute() / "postgres"


def is_elsewhere(config: Config) -> bool:
    """True if there is a pipeline database, though it does not answer: an embedded one may be stopped."""
    return config.database_dsn is not None or embedded_server(config).data.is_dir()


@contextmanager
def without_source(config: Config) -> Iterator[Config]:
    """The settings for work that needs no source: with the pipeline database's DSN no other one is needed.

    An embedded Postgres is used as by `existing`.
    """
    with existing(source_left_out(config)) as found:
        yield found


def source_left_out(config: Config) -> Config:
    """Return settings that need no source if they have the pipeline database's DSN: no embedded Postgres either."""
    return config if config.database_dsn is None else config.with_databases("", config.database)


def existing(config: Config) -> AbstractContextManager[Config]:
    """As `resolved`, for all but `serve` and `migrate`: an embedded Postgres that does not exist is never made."""
    return resolved(config, start=embedded_server(config).data.is_dir())


@contextmanager
def resolved(config: Config, *, start: bool = True) -> Iterator[Config]:
    """The settings with both DSNs filled in; the embedded Postgres runs inside the block when one was missing.

    It is stopped afterwards only when this call started it. With `start` false it must be running already:
    ConfigError says so otherwise. Raises EmbeddedPostgresError when it cannot be started.
    """
    if not needs_embedded(config):
        yield config
        return
    server = embedded_server(config)
    if not start and not server.running():
        given = {"PIPELINE_SOURCE_DSN": config.source_dsn, "PIPELINE_DATABASE_DSN": config.database_dsn}
        unset = [name for name, dsn in given.items() if dsn is None]
        missing, verb = " and ".join(unset), "is" if len(unset) == 1 else "are"
        raise ConfigError(
            f"{missing} {verb} not set and the embedded Postgres in {config.data_dir} is not running; "
            f"start `pipeline serve` first, or set {missing}"
        )
    started = server.start() if start else False
    try:
        server.create_databases(SOURCE, PIPELINE)
        yield config.with_databases(
            config.source if config.source_dsn else server.dsn(SOURCE),
            config.database if config.database_dsn else server.dsn(PIPELINE),
        )
    finally:
        if started:
            server.stop()
