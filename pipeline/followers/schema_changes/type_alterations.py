"""Alters a type of the follower as the source's type was altered, in a separate transaction."""

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
    """Statements that alter one type. `what`: how the source's type differs.

    `store`: a statement that records the source's type, with `values`.
    """

    name: str
    what: str
    statements: Sequence[sql.Composed]
    store: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)


def run(follower: Connection, registration: RegisteredFollower, altered: TypeAlteration) -> bool:
    """Alter the type; returns True if there was a statement to run.

    Raises SchemaChangeError if the settings forbid the change, or the follower refuses it.
    """
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
