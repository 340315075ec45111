"""A type of the follower that gets what the source's has, in a transaction of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from pipeline.errors import SchemaStopped
from pipeline.followers.registry import Follower
from pipeline.followers.schema_changes.alterations import OWNED
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TypeAlteration:
    """Statements that alter one type. `what`: how it is at the source. `store`: stores that it was, with `values`."""

    name: str
    what: str
    statements: Sequence[sql.Composed]
    store: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)


def run(follower: Connection, found: Follower, altered: TypeAlteration) -> bool:
    """Alter it; whether there was anything to do. Raises SchemaStopped where the follower is not to, or may not."""
    reason = f"the follower stops: type {altered.name} {altered.what}"
    texts = [each.as_string(follower) for each in altered.statements]
    if texts and found.ddl == "stop":
        raise SchemaStopped(f"{reason}, and --ddl is stop", f"`{texts[0]}` there")
    with follower.transaction():
        for each, text in zip(altered.statements, texts, strict=True):
            try:
                follower.execute(each)
            except psycopg.Error as error:
                if connections.is_gone(error) or connections.is_ours(error):
                    raise
                raise SchemaStopped(
                    f"{reason}, and the follower does not let us alter it: {connections.one_line(error)}"
                    f" (SQLSTATE {error.sqlstate})",
                    f"see that `{text}` can be run there" + (OWNED if error.sqlstate == "42501" else ""),
                ) from error
        if altered.store is not None:
            follower.execute(altered.store, altered.values)
    for text in texts:
        logger.info("%s: %s", found.name, text, extra={"action": "follower.altered"})
    return bool(texts)
