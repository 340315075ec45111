"""The two databases of a server: those that the DSNs name, or databases of the embedded Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from pipeline.config.settings import Config
from pipeline.errors import ConfigError
from pipeline.postgres.embedded import EmbeddedServer

SOURCE, PIPELINE = "source", "pipeline"


def needs_embedded(config: Config) -> bool:
    """True if a DSN is missing: the embedded Postgres is used then."""
    return config.source_dsn is None or config.database_dsn is None


def is_embedded(config: Config, database: str) -> bool:
    """True if the settings, before `resolved` fills them in or after, have this database in the embedded Postgres.

    `database`: SOURCE or PIPELINE.
    """
    dsn = config.source_dsn if database == SOURCE else config.database_dsn
    return dsn is None or conninfo_to_dict(dsn.get_secret_value()).get("host") == str(embedded_directory(config))


def embedded_server(config: Config) -> EmbeddedServer:
    """Return the embedded Postgres of these settings; it may be stopped, or not exist yet."""
    return EmbeddedServer(embedded_directory(config))


def embedded_directory(config: Config) -> Path:
    """Return the absolute path of the embedded Postgres, which may not exist yet."""
    return config.data_dir.absolute() / "postgres"


def is_elsewhere(config: Config) -> bool:
    """True if a pipeline database exists, even if it does not answer: an embedded one may be stopped."""
    return config.database_dsn is not None or embedded_server(config).data.is_dir()


@contextmanager
def without_source(config: Config) -> Iterator[Config]:
    """Yield the settings for work that needs no source. If they name the pipeline database, that DSN is enough.

    Otherwise the embedded Postgres is used, as `existing` uses it.
    """
    with existing(source_left_out(config)) as found:
        yield found


def source_left_out(config: Config) -> Config:
    """Return settings that need neither a source nor an embedded Postgres, if they have the pipeline database's DSN."""
    return config if config.database_dsn is None else config.with_databases("", config.database)


def existing(config: Config) -> AbstractContextManager[Config]:
    """Yield settings as `resolved` does, but never create an embedded Postgres: for all but `serve` and `migrate`."""
    return resolved(config, start=needs_embedded(config) and embedded_server(config).data.is_dir())


def _not_running(config: Config) -> str:
    """Say that the embedded Postgres does not run, or that the data directory has none; then what to do."""
    folder = config.data_dir.absolute()
    if embedded_server(config).data.is_dir():
        return f"the embedded Postgres in {folder} is not running; start `pipeline serve` first"
    if config.data_dir.is_absolute():
        return f"{folder} has no embedded Postgres; start `pipeline serve` first"
    return (
        f"{folder} has no embedded Postgres; PIPELINE_DATA_DIR ({config.data_dir}) is relative to the working folder: "
        "run this in the folder where `pipeline serve` runs, start it here first"
    )


@contextmanager
def resolved(config: Config, *, start: bool = True) -> Iterator[Config]:
    """Yield the settings with both DSNs filled in. If one was missing, the embedded Postgres runs during the block.

    The embedded Postgres is stopped afterwards only if this call started it. Unless `start` is true, it must run
    already, else ConfigError is raised. Raises EmbeddedPostgresError if it cannot be started.
    """
    if not needs_embedded(config):
        yield config
        return
    server = embedded_server(config)
    if not start and not server.running():
        given = {"PIPELINE_SOURCE_DSN": config.source_dsn, "PIPELINE_DATABASE_DSN": config.database_dsn}
        unset = [name for name, dsn in given.items() if dsn is None]
        missing, verb = " and ".join(unset), "is" if len(unset) == 1 else "are"
        raise ConfigError(f"{missing} {verb} not set and {_not_running(config)}, or set {missing}")
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
