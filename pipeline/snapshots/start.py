"""Start a backfill that a user asks for, and refuse at once what could not be read later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

import psycopg
from psycopg import sql

from pipeline.capture.source import captured_now, missing_source, publication_ledger, sources
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import compared_table
from pipeline.config.settings import Config
from pipeline.errors import BackfillError, ConditionRefusedError, NotComparableError, TableRefusedError
from pipeline.postgres import connections, queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import backfills, partition_changes, register, to_read
from pipeline.snapshots import status as shown_backfills
from pipeline.snapshots.conditions import check, condition
from pipeline.snapshots.conditions.condition import ColumnComparison, RowCondition
from pipeline.snapshots.status import BackfillStatus

_BOUNDS = {"statement_timeout": "5s", "lock_timeout": "500ms"}
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
ConditionParser = Callable[[Sequence[str]], RowCondition]


@dataclass(frozen=True)
class NamedRelation:
    """A relation of the source that a user named. `kind`, `persistence`: as in pg_class. `root`: of a partition."""

    oid: int
    name: str
    kind: str
    persistence: str
    root: str | None
    columns: list[str]


def by_text(where: str | None) -> ConditionParser | None:
    """Return a parser of this SQL expression; None if all rows are read."""
    return None if where is None else lambda columns: condition.parse(where, columns)


def by_terms(terms: Sequence[ColumnComparison]) -> ConditionParser | None:
    """Return a parser of the condition that all of these terms are true; None if there are no terms."""
    return (lambda columns: condition.of_terms(terms, columns)) if terms else None


def start(
    config: Config,
    source: Connection,
    pipeline: Connection,
    name: str,
    choose: ConditionParser | None = None,
    *,
    differences: bool = False,
) -> BackfillStatus:
    """Start a backfill of this table: `schema.table`, or a table of the schema public. Changes settings of `source`.

    `differences`: compare the whole table with the log, so that only what differs becomes events. If the table is only
    incomplete because partitions joined or left, compare only the rows that these may have.
    Raises TableRefusedError, ConditionRefusedError, or BackfillError if one of the table is under way, or no source
    is known.
    """
    stored = sources.find(pipeline, config.source_id)
    if stored is None:
        raise BackfillError(missing_source.explain_missing_source(pipeline))
    source.execute("set search_path = ''")
    captured = captured_now.read(config, source, pipeline, stored)
    found = _named(source, name, captured.values())
    table = captured.get(found.oid) or _refuse(found)
    with reading_session.catalog_session(config, source, name="pipeline backfill") as reading:
        relations = to_read.relations(
            reading, [table.oid], list(publication_ledger.known_publications(stored)), sized=False
        )
    for relation in relations:
        if relation.refused:
            raise TableRefusedError(relation.refused)
    if differences:
        _require_comparable(table, relations, choose)
        _require_comparable_key(source, pipeline, stored, table)
    started = _begin(
        config, pipeline, stored, table, choose(found.columns) if choose else None, differences=differences
    )
    if started is None:
        raise _under_way(pipeline, stored, table)
    return shown_backfills.show(config, pipeline, started)


def _begin(
    config: Config,
    pipeline: Connection,
    stored: ReplicationSource,
    table: CapturedTable,
    chosen: RowCondition | None,
    *,
    differences: bool,
) -> int | None:
    if differences and (changes := partition_changes.alone(pipeline, stored, table.oid)):
        with pipeline.transaction():
            return partition_changes.compare(pipeline, stored, table, changes)
    if chosen is None:
        return register.begin_reading(pipeline, stored, table, backfills.DIFFERENCES if differences else "asked")
    text = _chosen(config, table, chosen).text
    return backfills.start(pipeline, stored.id, stored.epoch, (table.oid, table.schema, table.name), "asked", text)


def captured_table(source: Connection, name: str, captured: Mapping[int, CapturedTable]) -> CapturedTable:
    """Return the captured table of this name, `schema.table` or one in public. Raises TableRefusedError."""
    found = _named(source, name, captured.values())
    return captured.get(found.oid) or _refuse(found)


def _require_comparable(
    table: CapturedTable, relations: Iterable[to_read.RelationToRead], choose: ConditionParser | None
) -> None:
    if choose is not None:
        raise ConditionRefusedError(
            "a whole table is compared; leave the condition out, or read the rows without differences"
        )
    if not table.keyed or not all(relation.identified for relation in relations):
        name = f"{table.schema}.{table.name}"
        raise TableRefusedError(
            f"{name} has no key by which rows could be compared; `pipeline backfill start {name}` reads it"
        )


def _require_comparable_key(
    source: Connection, pipeline: Connection, stored: ReplicationSource, table: CapturedTable
) -> None:
    """Raises TableRefusedError if comparing the table's keys may run code of an owner."""
    if not table.relations:
        return
    try:
        compared_table.comparison(source, compared_table.read(source, pipeline, stored, table.oid))
    except NotComparableError as error:
        raise TableRefusedError(f"{table.schema}.{table.name} cannot be compared: {error}") from error


def _named(source: Connection, name: str, captured: Iterable[CapturedTable]) -> NamedRelation:
    values = {"name": name}
    found = (
        queries.one(source, NamedRelation, statement("snapshots", "named_relations"), values)
        if "\0" not in name
        else None
    )
    if found is not None:
        return found
    known = sorted((each.schema, each.name) for each in captured)
    whole = "." in name
    comparable = {(f"{schema}.{table}" if whole else table).lower(): f"{schema}.{table}" for schema, table in known}
    near = [comparable[each] for each in get_close_matches(name.lower(), comparable, 3, 0.8 if whole else 0.6)]
    some = near or [*list(comparable.values())[:3], *(["…"] if len(known) > 3 else [])]
    listed = ", ".join(some)
    remedy = f"is it one of {listed}?" if listed else "no table is captured yet"
    raise TableRefusedError(f"the source has no table {name[:200]}; {remedy}")


def _refuse(found: NamedRelation) -> NoReturn:
    """Raise the reason why a relation is not a captured table."""
    if found.root is not None:
        raise TableRefusedError(f"{found.name} is a partition; name its root, {found.root}")
    if found.kind in _KINDS:
        raise TableRefusedError(
            f"{found.name} is {_KINDS[found.kind]}, which Postgres does not replicate; name a table"
        )
    if found.persistence != "p":
        raise TableRefusedError(f"{found.name} is unlogged or temporary, which Postgres does not replicate")
    raise TableRefusedError(f"{found.name} is not captured: no publication in use has it; `pipeline status` says why")


def _under_way(pipeline: Connection, stored: ReplicationSource, table: CapturedTable) -> BackfillError:
    for each in backfills.list_open(pipeline, stored.id):
        if each.table_oid == table.oid:
            text = f"backfill {each.id} of {each.table} is {each.state}; wait for its end, or cancel it"
            return BackfillError(text)
    return BackfillError(f"a backfill of {table.schema}.{table.name} has just ended; start it again")


def _chosen(config: Config, table: CapturedTable, chosen: RowCondition) -> RowCondition:
    """Return the condition if the source accepts it: Postgres plans it, which checks types, but does not run it."""
    name = sql.Identifier(table.schema, table.name)
    query = sql.SQL("explain select from only {} as t where {}").format(name, chosen.sql())
    with reading_session.connect(config, name="pipeline backfill", connect_timeout=5) as source:
        with reading_session.transaction(source, session_settings.SOURCE, **_BOUNDS):
            check.require_harmless(source, chosen, table.oid)
        try:
            with reading_session.transaction(source, session_settings.SOURCE, **_BOUNDS):
                reading_session.lock(source, [name], session_settings.SOURCE, _BOUNDS["lock_timeout"])
                check.require_harmless(source, chosen, table.oid)  # again, now that the lock prevents alterations
                source.execute(query)
        except psycopg.errors.LockNotAvailable:  # another session locks the table: a worker will check the condition
            return chosen
        except (psycopg.DataError, psycopg.ProgrammingError, psycopg.errors.QueryCanceled) as error:
            raise ConditionRefusedError(
                f"the source does not take that condition: {connections.one_line(error)}"
            ) from error
    return chosen
