"""`pipeline serve --example`: three small tables of a shop in an embedded source that has no tables."""

from __future__ import annotations

import logging

from pipeline.config.settings import Config
from pipeline.errors import ConfigError
from pipeline.postgres import connections, queries

logger = logging.getLogger(__name__)

_HAS_TABLES = "select exists (select from pg_class where relkind in ('r', 'p', 'f') and oid >= 16384)"


def require_embedded(config: Config) -> None:
    """Raises ConfigError if a setting names a database: the example's tables belong in the embedded source only."""
    given = {"PIPELINE_SOURCE_DSN": config.source_dsn, "PIPELINE_DATABASE_DSN": config.database_dsn}
    if found := " and ".join(name for name, dsn in given.items() if dsn is not None):
        raise ConfigError(f"--example needs the embedded Postgres: unset {found}, or leave --example out")


def create_tables(source_dsn: str) -> None:
    """Create the tables with their rows, or nothing if the source has a table already."""
    with connections.connect(source_dsn, "source", name="pipeline example") as source, source.transaction():
        if queries.value(source, _HAS_TABLES):
            said = "the embedded source has tables already, so --example created none"
        else:
            source.execute(queries.statement("server", "create_example"))
            said = "created the example's tables in the embedded source: customers, products and orders"
    logger.info(said, extra={"action": "serve.example"})
