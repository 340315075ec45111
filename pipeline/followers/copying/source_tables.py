"""Reads tables of the source, each in its own snapshot.

The log has every event that a snapshot does not contain, and the snapshot contains every event that the log had before
the follower's position (docs/internals/decisions/0015-a-copy-has-its-place-in-the-log.md).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError, PipelineError
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.postgres import connections, copy_data, queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOCK_TIMEOUT = "2s"
"""How long a statement waits for a lock; other sessions wait behind it."""
_ROOM = "followers.copying"
_COMMA = sql.SQL(", ")
_GENERATED_COLUMNS = """\
select a.attrelid::bigint, a.attname::text from pg_catalog.pg_attribute a
where a.attrelid = any(%(oids)s::oid[]) and a.attnum > 0 and not a.attisdropped and a.attgenerated <> ''
"""
"""List the generated columns of these relations, which COPY can only read with a query."""


class CopyDelayedError(PipelineError):
    """A table cannot be copied now, because another session is in the way, or the table was changed just now."""


@dataclass(frozen=True)
class SourceRelation:
    """A relation that holds rows of a table: the table itself, or a partition.

    `columns`, `condition`: what the publication contains. `shape` changes with the name and the columns. `name` is
    quoted.
    """

    oid: int
    name: str
    columns: list[str] | None
    condition: str | None
    shape: str


class SourceTables:
    """Reads tables over one session of the source, which prints values as the log has them.

    Postgres may run functions of a table's owner in this session. So no transaction relies on session state that an
    earlier one left.
    """

    def __init__(self, source: Connection, dsn: str, publications: Sequence[str], source_epoch: int) -> None:
        """`dsn`: for messages. `publications`: the names of the publications in use."""
        self.connection = self._source = source
        self._dsn, self._publications, self._epoch = dsn, list(publications), source_epoch
        self._settling: dict[int, tuple[list[SourceRelation], set[str]]] = {}
        """Tables, by oid, that wait for transactions to end: their relations, and the ids of these transactions."""

    def relations_at_rest(self, oid: int) -> list[SourceRelation]:
        """Return the relations of a table once the transactions that had written to them have ended.

        A dropped table has none. Call this after the follower's position was read. Raises CopyDelayedError while such
        a transaction runs, and FollowerError if the table is not published.
        """
        with self._explained(oid), reading_session.transaction(self._source, session_settings.COPY):
            relations = self._relations(oid)
            known = self._settling.get(oid)
            if known is None or known[0] != relations:
                known = relations, {each["transaction"] for each in self._writers(oid, relations)}
            remaining = self._writers(oid, relations, known[1]) if known[1] else []
            if remaining:
                self._settling[oid] = relations, {each["transaction"] for each in remaining}
                raise CopyDelayedError(f"waits for {_who(remaining[0])} to end, which has written to it")
            self._settling.pop(oid, None)
            return relations

    @contextmanager
    def reading(self, oid: int, relations: Sequence[SourceRelation]) -> Iterator[SnapshotCopy]:
        """Open a snapshot for reading the table; until the end, no session can alter or truncate the table.

        Raises CopyDelayedError if another session holds a lock, or if the table was altered.
        """
        try:
            with self._explained(oid):
                copy = self._begin(oid, relations)
            yield copy
        finally:
            with suppress(psycopg.Error):
                reading_session.roll_back(self._source)
        with self._explained(oid):
            # Without a marker, the log would not get past the copy while the source is idle.
            write_marker(self._source)

    def _begin(self, oid: int, relations: Sequence[SourceRelation]) -> SnapshotCopy:
        local = {"synchronous_commit": "local", "lock_timeout": LOCK_TIMEOUT}
        reading_session.begin(self._source, session_settings.COPY, **local)
        if relations:
            names = [_printed(relation) for relation in relations]
            reading_session.lock(self._source, names, session_settings.COPY, LOCK_TIMEOUT)
        # This is the first query: with a snapshot from before the lock, a table truncated in between would look empty.
        found = self._source.execute(statement(_ROOM, "snapshot")).fetchone()
        assert found is not None  # noqa: S101  function calls
        if self._relations(oid) != relations:
            raise CopyDelayedError("the table, or the part of it that is published, was altered just now")
        columns = None
        if relations:  # partitions have the columns of their root, with different numbers
            values = {"oid": oid, "columns": relations[0].columns}
            columns = queries.value(self._source, statement(_ROOM, "published_columns"), values)
        snapshot, lsn = found
        return SnapshotCopy(self._epoch, snapshot, lsn, columns)

    def rows(self, relation: SourceRelation, columns: Sequence[str]) -> Generator[bytes, None, None]:
        """Yield the published rows of a relation with these columns in blocks, as COPY writes them.

        The caller must close the generator.
        """
        listed = _COMMA.join(map(sql.Identifier, columns))
        query = sql.SQL("copy {} ({}) to stdout").format(_printed(relation), listed)
        with self._explained(relation.oid):
            if relation.condition is not None or not columns or self._generated(relation) & set(columns):
                query = sql.SQL("copy (select {} from only {}{}) to stdout").format(
                    listed,
                    _printed(relation),
                    # The catalog prints the condition as SQL.
                    sql.SQL("" if relation.condition is None else f" where {relation.condition}"),
                )
            with closing(copy_data.read_blocks(self._source, query)) as blocks:
                yield from blocks

    def _relations(self, oid: int) -> list[SourceRelation]:
        values = {"oid": oid, "publications": self._publications}
        query = statement("capture.source", "published_relations")
        found = queries.rows(self._source, SourceRelation, query, values)
        if not found and (there := self._source.execute(statement("snapshots", "leaves"), values).fetchall()):
            raise FollowerError(f"table {there[0][1]} of the source is no longer published, so it cannot be copied")
        return found

    def _generated(self, relation: SourceRelation) -> set[str]:
        found = self._source.execute(_GENERATED_COLUMNS, {"oids": [relation.oid]}).fetchall()
        return {name for _, name in found}

    def _writers(
        self, oid: int, relations: Sequence[SourceRelation], among: set[str] | None = None
    ) -> list[Mapping[str, Any]]:
        values = {"oids": [oid, *(each.oid for each in relations)], "among": None if among is None else list(among)}
        with self._source.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return list(cursor.execute(statement(_ROOM, "writers"), values))

    @contextmanager
    def _explained(self, oid: int) -> Iterator[None]:
        """Turn errors of the source into errors of the product. The block may use only the source's connection."""
        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            reading_session.roll_back(self._source)
            raise CopyDelayedError(
                f"waits for {describe_holder(self._source, oid)}, which locks it at the source"
            ) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise CopyDelayedError("the table was renamed or dropped just now") from error
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable(self._dsn, "source", error) from error


def write_marker(source: Connection) -> int:
    """Write a marker into WAL, so that the log gets past this LSN even if nothing else is written; returns the LSN."""
    reading_session.begin(source, session_settings.COPY, synchronous_commit="local")
    lsn: int = queries.value(source, statement("comparing", "mark_position"))
    source.execute("commit")
    return lsn


def describe_holder(connection: Connection, oid: int) -> str:
    """Describe a session that has a lock on a relation, for messages."""
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        found = cursor.execute(statement(_ROOM, "holders"), {"oids": [oid]}).fetchone()
    return "another session" if found is None else _who(found)


def _who(session: Mapping[str, Any]) -> str:
    if session["pid"] is None:
        return "a prepared transaction"
    user, application, state = session["user_name"], session["application"], session["state"]
    return f"pid {session['pid']} ({user or 'another user'}, {application or 'no name'}, {state or 'unknown'})"


def _printed(relation: SourceRelation) -> sql.SQL:
    """Return the relation's name as SQL; the catalog has quoted it."""
    return sql.SQL(relation.name)
