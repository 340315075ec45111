"""Publications that cannot make a user's statement fail: keyed tables in one, of keyless ones only inserts.

A publication of updates and deletes makes both *fail* on a table without a replica identity (CheckCmdReplicaIdentity),
so such a table is never in one that has them. Publications that we did not make are used as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import sql as pgsql
from psycopg.rows import class_row

from pipeline import db
from pipeline.db import Connection, sql
from pipeline.errors import PublicationMissing
from pipeline.events.log import EventsTable
from pipeline.replication.published import Ledger

logger = logging.getLogger(__name__)

KEYLESS_SUFFIX = "_keyless"
_PUBLISH = {"": "insert, update, delete, truncate", KEYLESS_SUFFIX: "insert, truncate"}


@dataclass(frozen=True)
class Table:
    """A table that could be published. `keyed`: all its updates and deletes can be published safely."""

    oid: int
    schema: str
    name: str
    root_schema: str
    root_name: str
    keyed: bool

    @property
    def identifier(self) -> pgsql.Identifier:
        """The name, quoted for SQL."""
        return pgsql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Publications:
    """What is published under which names. `made`: those we own, name to oid. `missing`: table to the reason why."""

    names: tuple[str, ...]
    made: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Publisher:
    """Keeps the publications of a source in step with its tables."""

    def __init__(
        self,
        source: Connection,
        publication: str,
        patterns: Sequence[str],
        own_tables: Sequence[EventsTable] = (),
    ) -> None:
        """`patterns`: PIPELINE_TABLES. `own_tables`: events tables, when source and pipeline share one database."""
        self._source = source
        self._name = publication
        self._patterns = [re.compile(re.escape(p).replace(r"\*", ".*")) for p in patterns]
        self._own_tables = own_tables

    def ensure(self, made: dict[str, int], ledger: Ledger) -> Publications:
        """Make what is missing and bring it up to date. `made`: the publications we are known to own.

        Raises PublicationMissing when there is none and no right to create one, and PublicationChanged when those in
        use publish less than the ledger says.
        """
        existing = self._existing()
        if self._name in existing and existing[self._name] != made.get(self._name):
            ledger.look([self._name])
            return Publications((self._name,), {}, self.missing(made))
        ledger.look(list(ledger.stored))
        owned = {}
        for suffix, actions in _PUBLISH.items():
            name = self._name + suffix
            owned[name] = existing[name] if name in existing else self._create(name, actions, ledger)
        return Publications(tuple(owned), owned, self.refresh(ledger))

    def require_possible(self) -> None:
        """Raises PublicationMissing when there is no publication and no right to create one; changes nothing."""
        row = self._source.execute("select has_database_privilege(current_database(), 'create')").fetchone()
        if self._name not in self._existing() and not (row and row[0]):
            raise self._missing("permission denied for database " + self._source.info.dbname)

    def missing(self, made: dict[str, int]) -> dict[str, str]:
        """Tables that match but are not captured in full, and why; changes nothing."""
        if self._name not in self._existing():  # before the first start there is nothing to leave out
            return {}
        reason = f'publication "{self._name}" was not made by this server and does not have it'
        if self._name in made:
            reason = "it is in no publication yet: this user may have to own it"
        left_out = {str(table): reason for table in self._uncovered()}
        for table in self.tables() if self._name in made else []:
            if not table.keyed and str(table) not in left_out:
                left_out[str(table)] = "only inserts and truncates: it has no replica identity (add a primary key)"
        return left_out

    def refresh(self, ledger: Ledger) -> dict[str, str]:
        """Add tables that have come, move those whose key came or went; returns what cannot be published, and why.

        Raises PublicationChanged, having changed nothing, when somebody took a table out: putting it back would hide
        that changes of it are missing. Adds come first, so that a table which moves is never in neither.
        """
        published = ledger.look([self._name + suffix for suffix in _PUBLISH])
        tables = self.tables()
        missing: dict[str, str] = {}
        gone: dict[str, list[Table]] = {}
        for suffix in _PUBLISH:
            name = self._name + suffix
            if name not in published:
                continue
            wanted = {table.oid: table for table in tables if table.keyed == (suffix == "")}
            known = {int(oid): member for oid, member in published[name].tables.items()}
            gone[name] = [
                Table(oid, schema, table, schema, table, False)
                for oid, (_, schema, table) in known.items()
                if oid not in wanted
            ]
            if new := [table for oid, table in wanted.items() if oid not in known]:
                self._alter(name, "add", new, missing)
                ledger.added(name, [table.oid for table in new])
        for name, leaving in gone.items():
            if not leaving:
                continue
            ledger.forget(name, [table.oid for table in leaving])
            self._alter(name, "drop", leaving, missing)
        return missing

    def _uncovered(self) -> list[Table]:
        names = [self._name + suffix for suffix in _PUBLISH]
        rows = self._source.execute(sql("replication", "covered_tables"), {"publications": names}).fetchall()
        covered = {row[0] for row in rows}
        return [table for table in self.tables() if table.oid not in covered]

    def _existing(self) -> dict[str, int]:
        names = [self._name + suffix for suffix in _PUBLISH]
        rows = self._source.execute(
            "select pubname::text, oid::bigint from pg_publication where pubname = any(%s)", (names,)
        ).fetchall()
        return dict(rows)

    def _create(self, name: str, actions: str, ledger: Ledger) -> int:
        try:
            with self._source.transaction():
                self._source.execute(
                    pgsql.SQL("create publication {} with (publish = {})").format(
                        pgsql.Identifier(name), pgsql.Literal(actions)
                    )
                )
                oid = self._existing()[name]
                ledger.made(name, oid)  # before it is there: never one of ours that we take for somebody else's
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._missing(db.one_line(error)) from error
        logger.info("publication created", extra={"action": "publication.created", "publication": name})
        return oid

    def _missing(self, cause: str) -> PublicationMissing:
        return PublicationMissing(
            f'publication "{self._name}" does not exist and this user may not create it ({cause}); '
            f"let an owner of the tables run: create publication {self._name} for table …"
        )

    def tables(self) -> list[Table]:
        """Every table that is wanted, as it is to be listed."""
        with self._source.cursor(row_factory=class_row(Table)) as cursor:
            tables = cursor.execute(sql("replication", "publishable_tables")).fetchall()
        return [table for table in tables if self._wants(table)]

    def _wants(self, table: Table) -> bool:
        root = f"{table.root_schema}.{table.root_name}"
        if self._own_tables and (
            table.root_schema == "pipeline"
            or root in {"public.wal_events", "public.consumer_records", *map(str, self._own_tables)}
        ):
            return False
        return not self._patterns or any(pattern.fullmatch(root) for pattern in self._patterns)

    def _alter(self, publication: str, verb: str, tables: Sequence[Table], missing: dict[str, str]) -> None:
        if not tables:
            return
        try:
            self._run(publication, verb, tables)
        except psycopg.Error:  # one of them: find out which, and do the rest
            for table in tables:
                try:
                    self._run(publication, verb, [table])
                except psycopg.OperationalError:
                    raise
                except psycopg.Error as error:
                    missing[str(table)] = db.one_line(error)

    def _run(self, publication: str, verb: str, tables: Iterable[Table]) -> None:
        # ONLY: without it the children of a table come along, and a child has no key of its own.
        listed = pgsql.SQL(", ").join(pgsql.SQL("only {}").format(table.identifier) for table in tables)
        with self._source.transaction():
            self._source.execute("set local lock_timeout = '2s'")
            self._source.execute(
                pgsql.SQL("alter publication {} {} table {}").format(
                    pgsql.Identifier(publication), pgsql.SQL("add" if verb == "add" else "drop"), listed
                )
            )
        for table in tables:
            logger.info(
                "table %s publication",
                "added to" if verb == "add" else "dropped from",
                extra={"action": f"publication.{verb}", "table": str(table), "publication": publication},
            )
