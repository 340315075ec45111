"""Gives tables that are copied the names that the source has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pipeline.config.settings import Config
from pipeline.errors import SchemaStopped
from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import Position
from pipeline.followers.registry import Follower, TableName
from pipeline.followers.schema_changes import reached_versions, source_tables, table_names
from pipeline.followers.schema_changes.alterations import Alteration, run
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres.connections import Connection


class Renames:
    """Renames the tables of one follower. May be used by several threads, each with a session of its own."""

    def __init__(
        self, config: Config, found: Follower, called: Callable[[Connection], Mapping[int, TableName]]
    ) -> None:
        """`called` returns the follower's tables by oid, over a connection to it."""
        self._config, self._found, self._called = config, found, called

    def called(self, follower: Connection) -> dict[int, Name]:
        """The names of the follower's tables by oid."""
        return {oid: (each.table_schema, each.table_name) for oid, each in self._called(follower).items()}

    def is_called(self, follower: Connection, table: TableName) -> bool:
        """True if the table still has that name: another one may have taken it."""
        return self.called(follower).get(table.table_oid) == (table.table_schema, table.table_name)

    def needed(self, follower: Connection, oid: int, target: Name) -> Mapping[int, Name]:
        """The tables that get another name, so that this one gets `target`. Raises SchemaStopped if it is taken."""
        called = self.called(follower)
        if called[oid] == target:
            return {}
        return table_names.moves(oid, target, called, partial(source_tables.read, self._config))

    def require_possible(self, follower: Connection, oid: int, target: Name) -> None:
        """Raises SchemaStopped if the table cannot get this name; changes nothing."""
        self._alterations(follower, self.needed(follower, oid, target))

    def carry_out(self, session: Connection, here: Position, oid: int, names: Mapping[int, Name]) -> None:
        """Rename these tables, one of which is `oid`, in the transaction that is open.

        Raises SchemaStopped if the follower does not let us, or is not to follow.
        """
        run(session, self._found.name, self.called(session)[oid], self._alterations(session, names))
        for each, name in names.items():
            reached_versions.store(session, here, each, name, table_versions.BEGINNING)

    def _alterations(self, session: Connection, names: Mapping[int, Name]) -> list[Alteration]:
        found = table_names.alterations(session, names, self.called(session))
        if found and self._found.ddl == "stop":
            raise SchemaStopped(f"{found[0].what}, and --ddl is stop", f"`{found[0].as_text(session)}` there")
        return found
