"""Finds labels that were added or renamed in the source's enums, once a value is refused: no event tells of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.schema_changes.type_alterations import TypeAlteration
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

_ROOM = "followers.schema_changes"


@dataclass(frozen=True)
class EnumType:
    """An enum. `labels`: in order. `label_oids`: their oids, which stay the same when a label is renamed."""

    schema: str
    name: str
    oid: int
    array_oid: int
    labels: list[str]
    label_oids: list[int]

    @property
    def identifier(self) -> sql.Identifier:
        """The name of the type for SQL."""
        return sql.Identifier(self.schema, self.name)

    @property
    def by_oid(self) -> dict[str, str]:
        """The labels by their oids, as they are stored."""
        return dict(zip(map(str, self.label_oids), self.labels, strict=True))


def alterations(
    log: Connection, source: Connection, follower: Connection, here: FollowerPosition
) -> Iterator[TypeAlteration]:
    """Yield alterations that give the follower's enums the current labels of the source's enums, one for each enum.

    Labels are renamed only if the type is the one that the follower knows. If another type replaced it, its labels are
    added. Raises SchemaChangeError if labels were renamed and it is unclear which.
    """
    theirs = {(each.schema, each.name): each for each in _read(source)}
    for each in _read(follower):
        there = theirs.get((each.schema, each.name))
        if there is None:
            continue
        values = {**vars(here), "schema": each.schema, "name": each.name}
        known = follower.execute(statement(_ROOM, "find_type"), values).fetchone()
        if known == (there.oid, there.by_oid) and set(there.labels) <= set(each.labels):
            continue
        if known is not None:
            renamed = _renamed(each, there, known[1] if known[0] == there.oid else {})
        else:
            logged = {oid for (oid,) in log.execute(statement(_ROOM, "logged_types"), values)}
            renamed = _renamed_unknown(each, there, logged)
        yield TypeAlteration(
            f"{each.schema}.{each.name}",
            "has other labels at the source",
            list(_statements(each, there, renamed)),
            statement(_ROOM, "store_type"),
            _stored(here, there),
        )


def _renamed(here: EnumType, there: EnumType, known: Mapping[str, str]) -> dict[str, str]:
    """Return new labels by old ones, if the previous labels are known by their oids."""
    now = there.by_oid
    found = {old: now[oid] for oid, old in known.items() if oid in now and now[oid] != old}
    return {old: new for old, new in found.items() if old in here.labels and old not in there.labels}


def _renamed_unknown(here: EnumType, there: EnumType, logged: Collection[int]) -> dict[str, str]:
    """Return new labels by old ones, which are unknown: by their order, if the log has no other type of this name.

    `logged`: the oids of types of this name in the log. If the source's current type is not among them, it has replaced
    the type of the existing values, whose labels must stay.
    """
    gone = [label for label in here.labels if label not in there.labels]
    missing = [label for label in there.labels if label not in here.labels]
    own = {there.oid, there.array_oid}
    if not gone or not missing or (logged and not own & set(logged)):
        return {}
    moved = {old: new for old, new in zip(here.labels, there.labels, strict=False) if old != new}
    is_clear = len(here.labels) == len(there.labels) and not any(new in here.labels for new in moved.values())
    if not is_clear or not logged or set(logged) - own:
        name, of = f"{here.schema}.{here.name}", shortest(here.schema, here.name)
        raise SchemaChangeError(
            f"the follower stops: labels of type {name} were renamed at the source, and it is not clear to what",
            f"`alter type {of} rename value '{gone[0]}' to …` there",
        )
    return moved


def remember(source: Connection, follower: Connection, here: FollowerPosition, unknown: Sequence[EnumType]) -> None:
    """Store the source's labels for these enums of the follower, if both sides have the same labels.

    From then on, renamed labels and replaced types can be recognized.
    """
    theirs = {(each.schema, each.name): each for each in _read(source)}
    for each in unknown:
        there = theirs.get((each.schema, each.name))
        if there is not None and there.labels == each.labels:
            follower.execute(statement(_ROOM, "store_type"), _stored(here, there))


def unknown(follower: Connection, here: FollowerPosition) -> list[EnumType]:
    """Return the follower's enums for which nothing is stored."""
    found = [(each, {**vars(here), "schema": each.schema, "name": each.name}) for each in _read(follower)]
    query = statement(_ROOM, "find_type")
    return [each for each, values in found if follower.execute(query, values).fetchone() is None]


def _stored(here: FollowerPosition, there: EnumType) -> dict[str, Any]:
    given = {"schema": there.schema, "name": there.name, "oid": there.oid, "parts": Jsonb(there.by_oid)}
    return {**vars(here), **given}


def _statements(here: EnumType, there: EnumType, renamed: Mapping[str, str]) -> Iterator[sql.Composed]:
    labels = [renamed.get(label, label) for label in here.labels]
    for old, new in renamed.items():
        if new not in here.labels:
            query = sql.SQL("alter type {} rename value {} to {}")
            yield query.format(here.identifier, sql.Literal(old), sql.Literal(new))
    for label in _missing(there.labels, labels):
        index = there.labels.index(label)
        beside, other = ("after", there.labels[index - 1]) if index else ("before", labels[0])
        yield sql.SQL("alter type {} add value if not exists {} {} {}").format(
            here.identifier, sql.Literal(label), sql.SQL(beside), sql.Literal(other)
        )


def _missing(there: Sequence[str], here: Sequence[str]) -> list[str]:
    return [label for label in there if label not in here]


def _read(connection: Connection) -> list[EnumType]:
    return queries.rows(connection, EnumType, statement(_ROOM, "enum_labels"))
