"""A type of the follower that gets what the source's has, in a transaction of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from pipeline.errors import SchemaChangeError
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.schema_changes import refused_statements
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


def run(follower: Connection, registration: RegisteredFollower, altered: TypeAlteration) -> bool:
    """Alter it; whether there was anything to do. Raises SchemaChangeError where the follower is not to, or may not."""
    why = f"the follower stops: type {altered.name} {altered.what}"
    if altered.statements and registration.ddl == "stop":
        text = altered.statements[0].as_string(follower)
        raise SchemaChangeError(f"{why}, and --ddl is stop", f"`{text}` there")
    with follower.transaction():
        texts = [refused_statements.execute(follower, each, why) for each in altered.statements]
        if altered.store is not None:
            follower.execute(altered.store, altered.values)
    for text in texts:
        logger.info("%s: %s", registration.name, text, extra={"action": "follower.altered"})
    return bool(texts)
