"""Compares the names and columns of a follower's tables with their versions in the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pipeline.followers import connecting
from pipeline.followers.applying import position, table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import BEGINNING, HistoryPlace, ReachedVersion, TableVersion
from pipeline.followers.copying import copies
from pipeline.followers.registry import FollowerTable, RegisteredFollower
from pipeline.followers.running import beginning
from pipeline.followers.schema_changes import reached_versions
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_PROGRAM = "pipeline followers"
_NAME_AT_SOURCE = """\
select n.nspname::text, c.relname::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = %(oid)s
"""
"""Return the current name of a table at the source."""


@dataclass(frozen=True)
class DefinitionComparison:
    """The result of comparing a follower's table with the version that it must have.

    - `differing`: how the table differs, in one line; None: it does not, or the log does not have the version yet.
    - `name`, `columns`: of that version; None if the log does not have it. The name may come from a later copy.
    - `columns_at_follower`: the columns of the table at the follower.
    """

    differing: str | None
    name: tuple[str, str] | None
    columns: frozenset[str] | None
    columns_at_follower: frozenset[str]

    def altered_since(self, name: tuple[str, str], columns: Iterable[str]) -> str | None:
        """Return what the source has altered since the newest event; None: nothing.

        `name`, `columns`: the table at the source now.
        """
        if self.name is None or self.columns is None:
            return None
        published = set(columns)
        found = [f"its name is {'.'.join(name)}"] if name != self.name else []
        found += [f"got column {each}" for each in sorted(published - self.columns)]
        found += [f"lost column {each}" for each in sorted(self.columns - published)]
        return f"altered at the source since its newest event: {', '.join(found)}" if found else None


def find_difference(source: Connection, log: Connection, registration: RegisteredFollower) -> str | None:
    """Return one line on the first table that differs; None if all tables agree. Raises DatabaseUnavailableError."""
    if not registration.table_states:
        return None
    with connecting.connect(registration.name, registration.dsn, program=_PROGRAM, prepare_threshold=None) as follower:
        for table in registration.table_states:
            found = compare(source, log, follower, registration, table)
            if found.differing:
                return f"table {table.table_schema}.{table.table_name} {found.differing}"
    return None


def compare(
    source: Connection, log: Connection, follower: Connection, registration: RegisteredFollower, table: FollowerTable
) -> DefinitionComparison:
    """Compare one table of the follower, at the follower's current position."""
    with reading_session.transaction(follower, session_settings.SOURCE):
        here = position.find(follower, registration.source_id, registration.name)
        if here is None or _waits_for_copy(follower, here, table.table_oid):
            return DefinitionComparison(None, None, None, frozenset())
        reached = beginning.reached_version(follower, here, table.table_oid)
        versions = table_versions.all_versions(log, here.source, [table.table_oid]).get(table.table_oid, [])
        known = _expected_version(versions, here, reached)
        called = _follower_name(follower, here, table)
        there = _columns(follower, called)
        if known is None:
            return DefinitionComparison(None, None, None, there or frozenset())
        name, columns = (known.table_schema, known.table_name), frozenset(each["name"] for each in known.columns)
        if there is None:
            return DefinitionComparison("is not there", name, columns, frozenset())
        if name != called:
            copy = copies.find(follower, here).get(table.table_oid)
            is_copied = copy is not None and copy.place >= known.place
            if not is_copied and _source_name(source, table.table_oid) not in (called, None):
                return DefinitionComparison(f"has the name {'.'.join(name)} in the log", name, columns, there)
        dropped = _dropped_columns(log, follower, registration, here, known)
        return DefinitionComparison(
            _column_differences(columns - there, there & dropped) or None, called, columns, there
        )


def _follower_name(follower: Connection, here: FollowerPosition, table: FollowerTable) -> tuple[str, str]:
    """Return the name of the table at the follower, which renames and copies may have changed since it was added."""
    stored = reached_versions.find(follower, here).get(table.table_oid)
    return (stored.table_schema, stored.table_name) if stored else (table.table_schema, table.table_name)


def _source_name(source: Connection, oid: int) -> tuple[str, str] | None:
    """Return the current name of a table at the source; None if it was dropped. The log may not have this name yet."""
    return source.execute(_NAME_AT_SOURCE, {"oid": oid}).fetchone()


def _expected_version(
    versions: list[TableVersion], here: FollowerPosition, reached: ReachedVersion
) -> TableVersion | None:
    """Return the version that the follower's table must have: the newest one up to its reached place and its position.

    If no version is that old, return the oldest version up to the position. None if the reached place is after the
    position.
    """
    place, known = reached.find_place(versions)
    upto = HistoryPlace(here.source_epoch, here.commit_lsn or 0, table_versions.LAST)
    past = [each for each in versions if each.place <= upto]
    candidates = [each for each in past if place is None or each.place <= place] or past[:1]
    return candidates[-1] if candidates and known and (place is None or place <= upto) else None


def _waits_for_copy(follower: Connection, here: FollowerPosition, oid: int) -> bool:
    """Return True if the table waits for a copy, which also alters its columns."""
    made, requested = copies.find(follower, here), copies.requested(follower, here)
    return (oid in made and made[oid] is None) or any(each.oid == oid for each in requested)


def _column_differences(lacking: Collection[str], dropped: Collection[str]) -> str:
    said = [f"has no column {', '.join(sorted(lacking))}, which it has in the log"] if lacking else []
    said += [f"has a column {', '.join(sorted(dropped))}, which was dropped at the source"] if dropped else []
    return ", and ".join(said)


def _dropped_columns(
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    here: FollowerPosition,
    known: TableVersion,
) -> frozenset[str]:
    """Return the columns that the source's table lost since it was followed or copied.

    Columns that only the follower has are not among them.
    """
    copy = copies.find(follower, here).get(known.table_oid)
    since = copy.place if copy is not None else BEGINNING
    if copy is None and registration.copy_mode == "none":
        values = {"seq": registration.made_seq}
        begins = queries.one(log, beginning.EventCommit, statement("followers.running", "commit_of_seq"), values)
        since = HistoryPlace(begins.source_epoch, begins.commit_lsn or 0, 0) if begins else BEGINNING
    earlier = _versions_since(
        table_versions.all_versions(log, here.source, [known.table_oid])[known.table_oid], since, known
    )
    return frozenset(each["name"] for version in earlier for each in version.columns) - {
        each["name"] for each in known.columns
    }


def _versions_since(versions: list[TableVersion], since: HistoryPlace, known: TableVersion) -> Iterator[TableVersion]:
    """Yield the versions before `known` that were valid at the place `since` or later."""
    for each, following in pairwise(versions):
        if each.id == known.id:
            return
        if following.place > since:
            yield each


def _columns(follower: Connection, name: tuple[str, str]) -> frozenset[str] | None:
    """Return the columns of the follower's table; None if the table does not exist."""
    values = {"schema": name[0], "name": name[1]}
    found = follower.execute(statement("followers.operating", "columns_of_table"), values).fetchone()
    return None if found is None else frozenset(found[0])
