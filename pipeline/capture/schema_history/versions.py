"""The relation history: every version of a source table, from which LSN it holds, and what encoding its rows needs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pipeline.capture.schema_history.fingerprint import TableFingerprint
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

MESSAGE_OID = 0
"""`table_oid` of logical messages, which belong to no table."""
_LOCK_RELATIONS = "select pg_advisory_xact_lock(hashtextextended('pipeline relations ' || %(source)s::text, 0))"
"""Prevent other sessions from adding a relation to the history until this transaction ends."""


@dataclass(frozen=True)
class ColumnName:
    """The name of a column from the change at (`lsn`, `idx`) on."""

    name: str
    lsn: int
    idx: int


@dataclass(frozen=True)
class PublishedColumn:
    """A column as published. `base_type_oid` is json or jsonb for domains over them, otherwise the type's oid.

    `attnum`: None if it is not certain, because the catalog was changed since then. `names`: the names under which
    the log has values that rows may still hold; a new list begins when older values no longer say what rows hold.
    `domain_of`: for a domain, the name of the type that it is over; empty in versions that older servers have
    recorded.
    """

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    key: bool
    attnum: int | None = None
    names: tuple[ColumnName, ...] = ()
    domain_of: str = ""

    @property
    def cast(self) -> str:
        """The type for a cast that leaves values as they are: `character` and `bit` alone mean a length of one."""
        return {1042: "pg_catalog.bpchar", 1560: 'pg_catalog."bit"'}.get(self.type_oid, self.type_name)


@dataclass(frozen=True)
class HistoryVersion:
    """A table as it was for the changes after a place in the WAL.

    `relation_*` is the relation in the stream; `table_*` its partition root, or the same. `key_columns` is the
    replica identity, or with FULL the primary key, in column order of the root; empty if there is none.
    `unique_in_root`: no two rows of the root share a key. `memberships`: oids of the publication memberships that
    publish updates; if all of them are new, some updates were not published.
    """

    relation_oid: int
    relation_schema: str
    relation_name: str
    table_oid: int
    table_schema: str
    table_name: str
    replica_identity: str
    columns: tuple[PublishedColumn, ...]
    key_columns: tuple[str, ...]
    unique_in_root: bool | None = None
    memberships: tuple[int, ...] | None = None


@dataclass(frozen=True)
class KnownVersion:
    """The newest version of a relation, its id, and the fingerprint read for it, if any."""

    id: int
    version: HistoryVersion
    fingerprint: TableFingerprint | None = None


@dataclass(frozen=True)
class CatalogNames:
    """The current names of a table in the catalog. `row_version` changes with everything that may rewrite the table.

    `root_keys`: columns of each unique index of its root, if that is not the root it was known to have.
    """

    oid: int
    row_version: str
    relation_schema: str
    relation_name: str
    table_oid: int
    root_schema: str | None
    root_name: str | None
    read_at: int
    root_keys: list[list[str]] | None

    def renamed(self, version: HistoryVersion) -> HistoryVersion:
        """Return the version with the current names of schema and root, which the source does not send.

        If the table itself has another name, the source sends that with the table's next change, under the schema of
        that time.
        """
        schema = self.relation_schema if self.relation_name == version.relation_name else version.relation_schema
        return replace(
            version,
            relation_schema=schema,
            table_oid=self.table_oid,
            table_schema=schema if self.root_schema is None else self.root_schema,
            table_name=version.relation_name if self.root_name is None else self.root_name,
            unique_in_root=version.unique_in_root if self.table_oid == version.table_oid else self._is_unique(version),
        )

    def _is_unique(self, version: HistoryVersion) -> bool | None:
        """Return True, or None if not known: the key may have got other names.

        Keys that the root loses later are sent again.
        """
        return any(set(version.key_columns).issuperset(key) for key in self.root_keys or ()) or None


def message_version(prefix: str = "") -> HistoryVersion:
    """Return the version that represents logical messages: a table without a schema.

    With a prefix it represents our own messages, and messages that an older server stored under their prefix. Without
    a name it represents all others, whose staged rows have their prefix as `record_pk`.
    """
    return HistoryVersion(MESSAGE_OID, "", prefix, MESSAGE_OID, "", prefix, "n", (), ())


def latest(connection: Connection, source_id: uuid.UUID, epoch: int) -> dict[tuple[int, str], KnownVersion]:
    """Return the last known version of each relation, by oid and (for logical messages) name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            statement("capture.schema_history", "latest_relations"), {"source": source_id, "epoch": epoch}
        ).fetchall()
    found = [_known(row) for row in rows]
    return {identity(known.version): known for known in found}


def key_names(
    connection: Connection, source_id: uuid.UUID, epoch: int, oids: Sequence[int]
) -> list[tuple[int, int, list[str]]]:
    """Return the names of the key columns of these relations, and commit_lsn and commit_idx from which on they hold."""
    values = {"source": source_id, "epoch": epoch, "oids": list(oids)}
    return connection.execute(statement("capture.schema_history", "key_names"), values).fetchall()


def new_keys(
    connection: Connection, source_id: uuid.UUID, epoch: int, after: int
) -> list[tuple[int, int, int, bool, list[int | None]]]:
    """Return the keys of versions with an id above `after`, in the order in which they were recorded.

    Each row has: id, oid, commit_lsn of its first change, whether it was a partition, and the numbers of its key's
    columns, None for a number that is not certain.
    """
    values = {"source": source_id, "epoch": epoch, "after": after}
    return connection.execute(statement("capture.schema_history", "new_keys"), values).fetchall()


def find(connection: Connection, source_id: uuid.UUID, epoch: int, identity: tuple[int, str]) -> KnownVersion | None:
    """Return the last known version of this relation, or None; no version is added before the transaction ends.

    For workers that read parts of a backlog at the same time; only inside of a transaction.
    """
    connection.execute(_LOCK_RELATIONS, {"source": source_id})
    values = {"source": source_id, "epoch": epoch, "oid": identity[0], "name": identity[1]}
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(statement("capture.schema_history", "find_relation"), values).fetchone()
    return None if row is None else _known(row)


def _known(row: dict[str, Any]) -> KnownVersion:
    relation_id, fingerprint = row.pop("id"), row.pop("fingerprint")
    since = row.pop("from_lsn"), row.pop("from_idx")
    return KnownVersion(
        relation_id, from_stored(row, since), TableFingerprint.from_json(fingerprint) if fingerprint else None
    )


def from_stored(stored: dict[str, Any], since: tuple[int, int]) -> HistoryVersion:
    """Return a version from its stored fields, which have lists for tuples; `since`: the place from which it holds."""
    columns = tuple(_column(column, since) for column in stored["columns"])
    memberships = None if stored["memberships"] is None else tuple(stored["memberships"])
    lists = {"columns": columns, "key_columns": tuple(stored["key_columns"]), "memberships": memberships}
    return HistoryVersion(**{**stored, **lists})


def _column(stored: dict[str, Any], since: tuple[int, int]) -> PublishedColumn:
    """Return a column from its stored fields.

    If the stored column has no history of names, it has its present name from `since` on.
    """
    names = stored.pop("names") or [{"name": stored["name"], "lsn": since[0], "idx": since[1]}]
    return PublishedColumn(**stored, names=tuple(ColumnName(**name) for name in names))


def record(
    connection: Connection,
    source_id: uuid.UUID,
    epoch: int,
    version: HistoryVersion,
    since: tuple[int, int],
    fingerprint: TableFingerprint | None = None,
) -> int:
    """Add a version to the history; `since`: the (commit_lsn, commit_idx) of its first change.

    Returns the version's id, to which staged rows refer.
    """
    row = connection.execute(
        statement("capture.schema_history", "record_relation"),
        {
            **vars(replace(version, columns=())),
            "columns": Jsonb([asdict(column) for column in version.columns]),
            "key_columns": list(version.key_columns),
            "memberships": None if version.memberships is None else list(version.memberships),
            "fingerprint": Jsonb(fingerprint.to_json()) if fingerprint else None,
            "source": source_id,
            "epoch": epoch,
            "from_lsn": since[0],
            "from_idx": since[1],
        },
    ).fetchone()
    assert row is not None  # noqa: S101  insert … returning
    return int(row[0])


def store_fingerprint(connection: Connection, relation_id: int, fingerprint: TableFingerprint) -> None:
    """Store the last fingerprint of a version that still holds."""
    connection.execute(
        "update pipeline.relations set fingerprint = %s where id = %s", (Jsonb(fingerprint.to_json()), relation_id)
    )


def identity(version: HistoryVersion) -> tuple[int, str]:
    """Return what all versions of a relation have in common: its oid, and for logical messages their name."""
    return version.relation_oid, version.relation_name if version.relation_oid == MESSAGE_OID else ""
