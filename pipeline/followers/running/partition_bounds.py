"""Which rows of a table a partition has that its follower does not know: its source is asked."""

from __future__ import annotations

from pipeline.config.settings import Config
from pipeline.followers import connecting
from pipeline.postgres import queries
from pipeline.postgres.queries import statement


def ask(config: Config, root: int, partition: int) -> str | None:
    """SQL that holds for the rows of a partition, by oids; None where it is not attached any more, or nothing says so.

    Raises Unavailable where the source does not answer.
    """
    with connecting.connect_catalog(config) as source:  # names are printed as they are found
        values = {"root": root, "partition": partition}
        found: str | None = queries.value(source, statement("followers.running", "partition_bound"), values)
    return found
