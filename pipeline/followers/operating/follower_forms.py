"""Compares the names and columns of a follower's tables with those that the log states.

The form of a table is its name and its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pipeline.followers import connecting
from pipeline.followers.applying import position, table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import BEGINNING, FollowerForm, HistoryPlace, TableFormVersion
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
class TableForm:
    """The result of comparing a follower's table with its newest form in the log.

    - `differing`: how the table differs, in one line; None: it does not, or no event states its form.
    - `name`, `columns`: the newest form; None if no event states it. The name may come from a later copy.
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
            form = compare(source, log, follower, registration, table)
            if form.differing:
                return f"table {table.table_schema}.{table.table_name} {form.differing}"
    return None


def compare(
    source: Connection, log: Connection, follower: Connection, registration: RegisteredFollower, table: FollowerTable
) -> TableForm:
    """Compare one table of the follower, at the follower's current position."""
    with reading_session.transaction(follower, session_settings.SOURCE):
        here = position.find(follower, registration.source_id, registration.name)
        if here is None or _is_to_be_copied(follower, here, table.table_oid):
            return TableForm(None, None, None, frozenset())
        formed = beginning.table_form(follower, here, table.table_oid)
        known = _expected_version(table_versions.all_versions(log, here.source, [table.table_oid]), here, table, formed)
        called = _follower_name(follower, here, table)
        there = _columns(follower, called)
        if known is None:
            return TableForm(None, None, None, there or frozenset())
        name, columns = (known.table_schema, known.table_name), frozenset(each["name"] for each in known.columns)
        if there is None:
            return TableForm("is not there", name, columns, frozenset())
        if name != called:
            copied = copies.find(follower, here).get(table.table_oid)
            is_copied = copied is not None and copied.place >= known.place
            if not is_copied and _source_name(source, table.table_oid) not in (called, None):
                return TableForm(f"has the name {'.'.join(name)} in the log", name, columns, there)
        dropped = _dropped_columns(log, follower, registration, here, known, formed)
        return TableForm(_column_differences(columns - there, there & dropped) or None, called, columns, there)


def _follower_name(follower: Connection, here: FollowerPosition, table: FollowerTable) -> tuple[str, str]:
    """Return the name of the table at the follower, which renames and copies may have changed since it was added."""
    stored = reached_versions.find(follower, here).get(table.table_oid)
    return (stored.table_schema, stored.table_name) if stored else (table.table_schema, table.table_name)


def _source_name(source: Connection, oid: int) -> tuple[str, str] | None:
    """Return the current name of a table at the source; None if it was dropped. The log may not have this name yet."""
    return source.execute(_NAME_AT_SOURCE, {"oid": oid}).fetchone()


def _expected_version(
    found: dict[int, list[TableFormVersion]], here: FollowerPosition, table: FollowerTable, formed: FollowerForm
) -> TableFormVersion | None:
    """Return the version that the follower's table must have: the newest one up to its stored form and its position.

    If no version is that old, return the oldest version up to the position. None if the stored form is of a later
    place than the position.
    """
    versions = found.get(table.table_oid, [])
    place, known = formed.within(versions)
    upto = HistoryPlace(here.source_epoch, here.commit_lsn or 0, table_versions.LAST)
    past = [each for each in versions if each.place <= upto]
    reached = [each for each in past if place is None or each.place <= place] or past[:1]
    return reached[-1] if reached and known and (place is None or place <= upto) else None


def _is_to_be_copied(follower: Connection, here: FollowerPosition, oid: int) -> bool:
    """True if the table will be copied, which also changes its columns."""
    made, anew = copies.find(follower, here), copies.requested(follower, here)
    return (oid in made and made[oid] is None) or any(each.oid == oid for each in anew)


def _column_differences(lacking: Collection[str], dropped: Collection[str]) -> str:
    said = [f"has no column {', '.join(sorted(lacking))}, which it has in the log"] if lacking else []
    said += [f"has a column {', '.join(sorted(dropped))}, which was dropped at the source"] if dropped else []
    return ", and ".join(said)


def _dropped_columns(
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    here: FollowerPosition,
    known: TableFormVersion,
    formed: FollowerForm,
) -> frozenset[str]:
    """Return the columns that the source's table lost since it was followed or copied.

    Columns that only the follower has are not among them.
    """
    copied = copies.find(follower, here).get(known.table_oid)
    since = copied.place if copied is not None else BEGINNING
    if copied is None and registration.copy == "none":
        values = {"seq": registration.made_seq}
        begins = queries.one(log, beginning.EventPlace, statement("followers.running", "place_of_seq"), values)
        since = HistoryPlace(begins.source_epoch, begins.commit_lsn or 0, 0) if begins else BEGINNING
    earlier = _versions_since(
        table_versions.all_versions(log, here.source, [known.table_oid])[known.table_oid], since, known
    )
    return frozenset(each["name"] for version in earlier for each in version.columns) - {
        each["name"] for each in known.columns
    }


def _versions_since(
    versions: list[TableFormVersion], since: HistoryPlace, known: TableFormVersion
) -> Iterator[TableFormVersion]:
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
