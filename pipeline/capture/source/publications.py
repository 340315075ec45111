"""Publications that cannot make a user's statement fail: one for keyed tables, one for only the inserts of the
others.

A publication of updates and deletes makes both *fail* on a table without a replica identity
(CheckCmdReplicaIdentity), so such a table is never added to one. Publications of other users are used as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from pipeline.capture.source import own_tables, publication_form, publishable_tables
from pipeline.capture.source.own_tables import OwnTables
from pipeline.capture.source.publication_form import ACTIONS
from pipeline.capture.source.publication_ledger import PublicationLedger, PublicationState, read_publications
from pipeline.capture.source.publishable_tables import PublishableTable, QualifiedTableName
from pipeline.config import patterns
from pipeline.errors import PublicationMissingError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.printable import shortest

logger = logging.getLogger(__name__)

_WITH_GENERATED = sql.SQL("alter publication {} set (publish_generated_columns = stored)")
_NOT_OWNED = "this user does not own it, or may not use its schema"
_AT_ONCE = 500
"""The most tables in one statement: each is locked until it commits, and the number of locks is limited."""
LOCK_TIMEOUT = "2s"
"""How long a statement waits for locks that users hold."""
_MEMBER_TABLES = """\
select r.prrelid::bigint
from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
where p.pubname = %(publication)s
"""
"""The tables that a publication names, as our open transaction sees them."""


@dataclass(frozen=True)
class PublicationSet:
    """The publications in use. `made`: those that we made, name to oid. `missing`: tables left out, with the reason."""

    names: tuple[str, ...]
    made: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def tables_of(source: Connection, publication: str) -> list[QualifiedTableName]:
    """Return the tables that a publication of any kind publishes; none if it does not exist."""
    rows = source.execute(
        "select schemaname::text, tablename::text from pg_publication_tables where pubname = %s order by 1, 2",
        (publication,),
    ).fetchall()
    return [QualifiedTableName(*row) for row in rows]


def _unmatched(patterns: Sequence[str], found: Sequence[PublishableTable]) -> str:
    roots = list(dict.fromkeys(table.names[-1] for table in found))
    shown = ", ".join(roots[:3]) + (", …" if len(roots) > 3 else "")
    return (
        f"PIPELINE_TABLES ({', '.join(patterns)}) matches none of the source's tables ({shown}); correct it, or create "
        "a table that it matches"
    )


class _AnotherTableError(Exception):
    """A table was renamed or recreated since it was looked up: another table has its name now."""


class Publisher:
    """Keeps the publications of a source up to date with its tables."""

    def __init__(
        self,
        source: Connection,
        publication: str,
        patterns: Sequence[str],
        own: OwnTables = own_tables.NONE,
    ) -> None:
        """`patterns`: PIPELINE_TABLES."""
        self._source = source
        self._name = publication
        self._patterns = tuple(patterns)
        self._own = own
        self.unmatched: str | None = None
        """Why nothing can be captured, as `tables` found it last: the patterns match none of the existing tables."""

    def ensure(self, made: dict[str, int], ledger: PublicationLedger) -> PublicationSet:
        """Create missing publications and bring them up to date. `made`: the stored publications that we made.

        Raises PublicationMissingError if there is none and we may not create one. Raises PublicationChangedError if
        those in use publish less than the ledger says.
        """
        existing = self._existing()
        if self._name in existing and existing[self._name] != made.get(self._name):
            ledger.check([self._name])
            return PublicationSet((self._name,), {}, self.missing(made))
        ledger.check(list(ledger.stored))
        owned = {}
        for suffix, actions in ACTIONS.items():
            name = self._name + suffix
            owned[name] = existing[name] if name in existing else self._create(name, actions, ledger)
        return PublicationSet(tuple(owned), owned, self.refresh(ledger))

    def require_possible(self) -> None:
        """Raises PublicationMissingError if there is no publication and we may not create one; changes nothing."""
        if self._name not in self._existing() and not (
            queries.value(self._source, "select has_database_privilege(current_database(), 'create')")
        ):
            raise self._missing("permission denied for database " + self._source.info.dbname)

    def missing(self, made: dict[str, int]) -> dict[str, str]:
        """Return the tables that match but are not captured completely, and why; changes nothing."""
        if self._name not in self._existing():  # before the first start nothing is left out
            return {}
        in_use = [self._name]
        reason = f'publication "{self._name}" was not made by this server and does not contain it'
        if self._name in made:
            in_use = [self._name + suffix for suffix in ACTIONS]
            reason = "no publication has the table yet: this user may have to own it"
        tables = self.tables()
        left_out = {str(table): reason for table in self._uncovered(tables, in_use)}
        for table in tables if self._name in made else []:
            if table.lacks_key and str(table) not in left_out:
                left_out[str(table)] = (
                    "only inserts and truncates: the table has no replica identity that can be published "
                    "(add a primary key)"
                )
        partial = {} if self._name in made else publication_form.partial_tables(self._source, in_use)
        return partial | left_out

    def refresh(self, ledger: PublicationLedger) -> dict[str, str]:
        """Add new tables, and move those that got or lost a key; returns the tables that cannot be published, and
        why.

        Raises PublicationChangedError, having changed nothing, if another user removed a table: adding it again would
        hide that changes of it are missing. Tables are added before any are dropped, so that a table that moves is
        always in at least one publication.
        """
        names = [self._name + suffix for suffix in ACTIONS]
        published = self._with_generated(ledger.check(names), ledger)
        tables = self.tables()
        if self.unmatched:  # most likely a mistake: captured tables stay captured
            return {}
        missing = {str(table): _NOT_OWNED for table in self._uncovered(tables, names) if not table.owned}
        to_drop: dict[str, dict[int, QualifiedTableName]] = {}
        for suffix in ACTIONS:
            name = self._name + suffix
            if name not in published:
                continue
            wanted = {table.oid: table for table in tables if table.keyed == (suffix == "")}
            known = {int(oid): QualifiedTableName(*member[1:]) for oid, member in published[name].tables.items()}
            to_drop[name] = {oid: table for oid, table in known.items() if oid not in wanted}
            new = {t.oid: t.table_name for t in wanted.values() if t.oid not in known and t.owned}
            if new:
                ledger.before_publishing(
                    [table.oid for table in wanted.values() if table.oid in new and table.needs_baseline]
                )
                missing |= self._alter(name, "add", new)
                ledger.added(name, list(new))
        for name, leaving in to_drop.items():
            if leaving:
                ledger.forget(name, list(leaving))
                missing |= self._alter(name, "drop", leaving)
        return missing

    def _with_generated(
        self, published: dict[str, PublicationState], ledger: PublicationLedger
    ) -> dict[str, PublicationState]:
        """Publish stored generated columns, from Postgres 18 on.

        Both publications do, since a table may be in both.
        """
        late = [name for name, publication in published.items() if publication.generated not in (None, "s")]
        if not late:
            return published
        with self._source.transaction():
            for name in late:
                self._source.execute(_WITH_GENERATED.format(sql.Identifier(name)))
        return ledger.check(list(published))

    def _uncovered(self, tables: Sequence[PublishableTable], publications: Sequence[str]) -> list[PublishableTable]:
        return publishable_tables.find_uncovered(tables, read_publications(self._source, publications).values())

    def _existing(self) -> dict[str, int]:
        names = [self._name + suffix for suffix in ACTIONS]
        rows = self._source.execute(
            "select pubname::text, oid::bigint from pg_publication where pubname = any(%s)", (names,)
        ).fetchall()
        return dict(rows)

    def _create(self, name: str, actions: Sequence[str], ledger: PublicationLedger) -> int:
        try:
            with self._source.transaction():
                statement = sql.SQL("create publication {} with (publish = {})")
                self._source.execute(statement.format(sql.Identifier(name), sql.Literal(", ".join(actions))))
                if self._source.info.server_version >= 180000:
                    self._source.execute(_WITH_GENERATED.format(sql.Identifier(name)))
                oid = self._existing()[name]
                ledger.made(name, oid)  # before others can see it, so that we always know our own
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._missing(connections.one_line(error)) from error
        logger.info("publication created", extra={"action": "publication.created", "publication": name})
        return oid

    def _missing(self, cause: str) -> PublicationMissingError:
        return PublicationMissingError(
            f'publication "{self._name}" does not exist and this user may not create it ({cause}); '
            f"let an owner of the tables run: create publication {shortest(self._name)} for table …"
        )

    def tables(self) -> list[PublishableTable]:
        """Return every table to publish, and its partitions."""
        found = [
            table
            for table in publishable_tables.read(self._source, self._name)
            if not self._own.includes(table.schema, table.names)
        ]
        wanted = [table for table in found if self._matches(table.names)]
        self.unmatched = None if wanted or not found else _unmatched(self._patterns, found)
        return wanted

    def unpublishable(self) -> dict[str, list[str]]:
        """Return relations that match and can never be replicated: names by kind."""
        found: dict[str, list[str]] = {}
        for name, kind in publishable_tables.find_unpublishable(self._source):
            if self._matches([name]):
                found.setdefault(kind, []).append(name)
        return found

    def _matches(self, names: Iterable[str]) -> bool:
        return any(patterns.matches(self._patterns, name) for name in names)

    def _alter(self, publication: str, verb: str, tables: dict[int, QualifiedTableName]) -> dict[str, str]:
        """Add or drop tables, by oid. Returns the tables for which that failed, with the reason."""
        missing: dict[str, str] = {}
        for first in range(0, len(tables), _AT_ONCE):
            some = dict(list(tables.items())[first : first + _AT_ONCE])
            try:
                self._run(publication, verb, some)
            except (psycopg.Error, _AnotherTableError):  # one of them fails: alter the others one by one
                missing |= self._one_by_one(publication, verb, some)
        return missing

    def _one_by_one(self, publication: str, verb: str, tables: dict[int, QualifiedTableName]) -> dict[str, str]:
        missing = {}
        for oid, table in tables.items():
            try:
                self._run(publication, verb, {oid: table})
            except psycopg.OperationalError:
                raise
            except (psycopg.Error, _AnotherTableError) as error:
                missing[str(table)] = connections.one_line(error)
        return missing

    def _members(self, publication: str) -> set[int]:
        rows = self._source.execute(_MEMBER_TABLES, {"publication": publication}).fetchall()
        return {oid for (oid,) in rows}

    def _run(self, publication: str, verb: str, tables: dict[int, QualifiedTableName]) -> None:
        # ONLY, or the children of a table would be added, too, and a child may have no key.
        listed = sql.SQL(", ").join(sql.SQL("only {}").format(table.identifier) for table in tables.values())
        with self._source.transaction(), queries.lock_timeout(self._source, LOCK_TIMEOUT):
            before = self._members(publication)
            self._source.execute(
                sql.SQL("alter publication {} {} table {}").format(
                    sql.Identifier(publication), sql.SQL("add" if verb == "add" else "drop"), listed
                )
            )
            wanted = before | tables.keys() if verb == "add" else before - tables.keys()
            if self._members(publication) != wanted:
                raise _AnotherTableError("another table has its name now; the next check finds both")
        for table in tables.values():
            logger.info(
                "table %s publication",
                "added to" if verb == "add" else "dropped from",
                extra={"action": f"publication.{verb}", "table": str(table), "publication": publication},
            )
