"""The source we replicate from: one row of `pipeline.sources`, made at first start."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from pipeline.db import Connection, sql
from pipeline.errors import ConfigError


@dataclass(frozen=True)
class Source:
    """A source as stored. `publications`: those that we made, name to oid."""

    id: uuid.UUID
    epoch: int
    system_identifier: str
    database_name: str
    slot: str
    publications: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def find(connection: Connection, source_id: uuid.UUID | None) -> Source | None:
    """The source with this id, or the only one; None when there is none yet.

    Raises ConfigError when several are stored and no id says which.
    """
    with connection.cursor(row_factory=class_row(Source)) as cursor:
        found = cursor.execute(sql("catalog", "find_sources"), {"id": source_id}).fetchall()
    if len(found) > 1:
        ids = ", ".join(str(source.id) for source in found)
        raise ConfigError(f"the pipeline database has {len(found)} sources; set PIPELINE_SOURCE_ID to one of {ids}")
    return found[0] if found else None


def add(connection: Connection, source: Source) -> None:
    """Store a new source."""
    connection.execute(
        sql("catalog", "add_source"),
        {
            "id": source.id,
            "epoch": source.epoch,
            "system_identifier": source.system_identifier,
            "database_name": source.database_name,
            "slot": source.slot,
            "options": Jsonb(source.options),
        },
    )


def add_publication(connection: Connection, source_id: uuid.UUID, name: str, oid: int) -> None:
    """Remember that we made this publication: only such ones do we ever change."""
    connection.execute(sql("catalog", "add_publication"), {"id": source_id, "publication": Jsonb({name: oid})})
