"""Gives a follower's tables the source's names, so that no two tables of the source are written to one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from pipeline.config.settings import Config
from pipeline.errors import FollowedTablesChangedError, SchemaChangeError
from pipeline.followers import registry
from pipeline.followers.applying import position, table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import copies, missing_tables
from pipeline.followers.copying.source_definitions import SourceDefinition
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.schema_changes import last_definitions, reached_versions, source_tables, table_names
from pipeline.followers.schema_changes.alterations import TableAlteration, run
from pipeline.followers.schema_changes.table_names import Name, NameChanges
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)
_FORGOTTEN = {"action": "follower.forgotten"}


class TableRenames:
    """Renames the tables of one follower. May be used by several threads, each with its own session."""

    def __init__(
        self,
        config: Config,
        found: Callable[[], RegisteredFollower],
        called: Callable[[Connection], Mapping[int, NamedTable]],
    ) -> None:
        """`found`: returns the follower's current registration.

        `called`: returns the follower's tables with their current names, by oid, over a connection to the follower.
        """
        self._config, self._find, self._called = config, found, called

    def called(self, follower: Connection) -> dict[int, Name]:
        """Return the names of the follower's tables by oid."""
        return {oid: (each.table_schema, each.table_name) for oid, each in self._called(follower).items()}

    def is_called(self, follower: Connection, table: NamedTable) -> bool:
        """Return True if the table still has this name: another table may have taken it."""
        return self.called(follower).get(table.table_oid) == (table.table_schema, table.table_name)

    def plan(self, follower: Connection, targets: Mapping[int, Name]) -> NameChanges:
        """Plan which tables are renamed, so that tables get these names.

        Raises DatabaseUnavailableError if the source is needed and does not answer.
        """
        return table_names.plan_names(targets, self.called(follower), partial(source_tables.read, self._config))

    def require_possible(self, follower: Connection, oid: int, target: Name) -> None:
        """Raise SchemaChangeError if the table cannot get this name; changes nothing."""
        self._alterations(follower, self.plan(follower, {oid: target}), self.called(follower))

    def carry_out(self, session: Connection, here: FollowerPosition, moves: NameChanges) -> None:
        """Rename these tables in the open transaction. Once it has committed, call `forget` with `moves.gone`.

        Raises SchemaChangeError if the follower refuses a statement, or the settings forbid to follow.
        """
        self._rename(session, here, moves, self.called(session))

    def forget(self, log: Connection, gone: Collection[int]) -> None:
        """Stop following these tables, because the source has dropped them. `log`: the pipeline database."""
        if not gone:
            return
        found = self._find()
        registry.forget_tables(log, found.id, list(gone))
        for each in found.table_states:
            if each.table_oid in gone:
                text = "%s: table %s.%s was dropped at the source, and is followed no longer"
                logger.info(text, found.name, each.table_schema, each.table_name, extra=_FORGOTTEN)

    def request_copies(
        self, log: Connection, follower: Connection, targets: Mapping[int, Name], known: Mapping[int, Name]
    ) -> dict[int, Name]:
        """Request copies of tables that the follower lacks, under these names; returns the names that they get.

        `known`: the names of the follower's tables, read before it was found what it lacks. Raises
        FollowedTablesChangedError if another session has renamed tables since, ApplierOvertakenError,
        DatabaseUnavailableError, and SchemaChangeError if existing tables keep the names.
        """
        without = {oid: name for oid, name in known.items() if oid not in targets}
        moves = table_names.plan_names(targets, without, partial(source_tables.read, self._config))
        taken = {oid: moves.names[oid] for oid in targets if oid not in moves.gone}
        definitions = self._definitions_of_replaced(log, follower, moves, taken)
        # Forget these first. Then nothing is written to them, and a new table with such a name finds the old one.
        self.forget(log, moves.gone)
        with follower.transaction():
            here = self._here(follower)
            if {**known, **self.called(follower)} != known:
                raise FollowedTablesChangedError(f"tables of follower {here.follower} have other names by now")
            self._rename(follower, here, moves, without)
            copies.request(follower, here, taken)
            for oid, definition in definitions.items():
                copies.store_definition(follower, here, definition, oid)
        return taken

    def _definitions_of_replaced(
        self, log: Connection, follower: Connection, moves: NameChanges, taken: Mapping[int, Name]
    ) -> dict[int, SourceDefinition]:
        """Return the definitions of tables that others replace, by the oids of the others.

        Until its copy is finished, the new table has the definition of the one that it replaces.
        """
        found = self._find()
        here = position.require_existing(follower, found.source_id, found.name)
        holders = {name: oid for oid, name in self.called(follower).items() if oid in moves.gone - moves.names.keys()}
        tables = {oid: NamedTable(holders[name], *name) for oid, name in taken.items() if name in holders}
        found_last = {oid: last_definitions.find(log, follower, here, table) for oid, table in tables.items()}
        return {oid: definition for oid, definition in found_last.items() if definition is not None}

    def follow_missing_tables(self, log: Connection, follower: Connection) -> bool:
        """Request copies of tables that the follower lacks under the source's current names, and forget dropped tables.

        The same applies to tables that share one name. Returns True if there was such a table; then the list of tables
        that follow the log has changed. Raises DatabaseUnavailableError.
        """
        called = self.called(follower)
        tables = [NamedTable(oid, *name) for oid, name in called.items()]
        lacking = {table.table_oid for table in missing_tables.lacking(follower, tables)}
        counts = Counter(called.values())
        shared = {oid for oid, name in called.items() if counts[name] > 1}
        if not lacking and not shared:
            return False
        there = source_tables.read(self._config, {*lacking, *shared})
        gone = sorted(oid for oid in {*lacking, *shared} if oid not in there)
        others = {oid: each.called for oid, each in there.items() if oid in shared or each.called != called[oid]}
        if not gone and not others:
            return False
        self.forget(log, gone)
        with follower.transaction():
            here = self._here(follower)
            reached_versions.forget(follower, here, gone)
            copies.forget(follower, here, gone)
        if others:
            self.request_copies(log, follower, others, called)
        return True

    def _here(self, follower: Connection) -> FollowerPosition:
        """Return the follower's position, locked until the end of the transaction."""
        found = self._find()
        return position.require_existing(follower, found.source_id, found.name, held=True)

    def _rename(
        self, session: Connection, here: FollowerPosition, moves: NameChanges, called: Mapping[int, Name]
    ) -> None:
        for name, each in self._alterations(session, moves, called):
            run(session, here.follower, name, [each])
        for oid, name in moves.names.items():
            reached_versions.store(session, here, oid, name, table_versions.BEGINNING)
        reached_versions.forget(session, here, moves.gone - moves.names.keys())
        copies.forget(session, here, moves.gone)

    def _alterations(
        self, session: Connection, moves: NameChanges, called: Mapping[int, Name]
    ) -> Sequence[tuple[Name, TableAlteration]]:
        found = table_names.alterations(session, moves.names, called)
        if found and self._find().ddl == "stop":
            (name, first), *_ = found
            raise SchemaChangeError(
                f"table {'.'.join(name)} of the follower stops: {first.what}, and --ddl is stop",
                f"`{first.as_text(session)}` there",
            )
        return found
