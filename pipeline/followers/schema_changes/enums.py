"""Labels that the source's enums have got: no event tells of them, so they are looked for where a value is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import SchemaStopped
from pipeline.followers import connecting
from pipeline.followers.registry import Follower
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Enum:
    """`labels`: in their order."""

    schema: str
    name: str
    labels: list[str]

    @property
    def identifier(self) -> sql.Identifier:
        """Its name for SQL."""
        return sql.Identifier(self.schema, self.name)


def follow(config: Config, follower: Connection, found: Follower) -> bool:
    """Give the follower's enums the labels that the source's have by now; whether it lacked one.

    Each is added in a transaction of its own: none may use a label before that has ended. Raises SchemaStopped where it
    is not to follow, or where labels have been renamed so that it is not clear which; Unavailable.
    """
    with connecting.connect_catalog(config) as source:
        theirs = {(each.schema, each.name): each for each in _read(source)}
    made = False
    for each in _read(follower):
        there = theirs.get((each.schema, each.name))
        for query in () if there is None else _statements(each, there.labels):
            text = query.as_string(follower)
            if found.ddl == "stop":
                raise SchemaStopped(
                    f"the follower stops: type {each.schema}.{each.name} has other labels at the source, and --ddl is"
                    " stop",
                    f"`{text}` there",
                )
            follower.execute(query)
            logger.info("%s: %s", found.name, text, extra={"action": "follower.altered"})
            made = True
    return made


def _statements(here: Enum, there: Sequence[str]) -> Iterator[sql.Composed]:
    gone = [label for label in here.labels if label not in there]
    if gone and len(here.labels) == len(there):
        for old, new in zip(here.labels, there, strict=True):
            if old != new and new in here.labels:
                raise _unclear(here, gone)
            if old != new:
                renamed = sql.SQL("alter type {} rename value {} to {}")
                yield renamed.format(here.identifier, sql.Literal(old), sql.Literal(new))
        return
    missing = [label for label in there if label not in here.labels]
    if gone and missing:
        raise _unclear(here, gone)
    for label in missing:
        place = there.index(label)
        beside, other = ("after", there[place - 1]) if place else ("before", here.labels[0])
        yield sql.SQL("alter type {} add value if not exists {} {} {}").format(
            here.identifier, sql.Literal(label), sql.SQL(beside), sql.Literal(other)
        )


def _unclear(here: Enum, gone: Sequence[str]) -> SchemaStopped:
    name = f"{here.schema}.{here.name}"
    return SchemaStopped(
        f"the follower stops: labels of type {name} were renamed at the source, and it is not clear to what",
        f"`alter type {name} rename value '{gone[0]}' to …` there",
    )


def _read(connection: Connection) -> list[Enum]:
    return queries.rows(connection, Enum, statement("followers.schema_changes", "enum_labels"))
