"""Chooses the published tables of the source for a follower, and refuses tables that it cannot have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.capture.schema_history import rewrites
from pipeline.capture.source import captured_now, publication_ledger, published_relations
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config import patterns
from pipeline.config.settings import Config
from pipeline.errors import FollowerRefusedError
from pipeline.findings import first_names
from pipeline.followers.admission.tables import PublishedTable
from pipeline.followers.routed_tables import is_routed
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import known_tables, overview

_ALL = 2**31 - 1
_DEFERRABLE_KEYS = """\
select i.indrelid::bigint from pg_catalog.pg_index i
where i.indrelid = any(%(oids)s::oid[]) and i.indisprimary and not i.indimmediate
"""
"""Return the tables whose primary key is deferrable, so it holds only at a commit."""
_NEWEST_OF_SOURCE = """\
select coalesce(
    (select seq from pipeline.events where source_database_id = %(source)s order by seq desc limit 1), 0
)
"""
"""Return the newest seq of a source in the log; 0 before the first event."""


def choose_tables(
    config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource, listed: Sequence[str]
) -> list[PublishedTable]:
    """Return the captured tables that match these patterns, by name; all tables if there are no patterns.

    Raises FollowerRefusedError if no table matches, and if a route sends changes of a table to another events table.
    """
    try:
        patterns.require_qualified(listed)
    except ValueError as error:
        raise FollowerRefusedError(f"--{error}") from None
    captured = captured_now.read(config, source, pipeline, stored).values()
    found = [each for each in captured if patterns.matches(tuple(listed), f"{each.schema}.{each.name}")]
    if listed and not found:
        raise FollowerRefusedError(
            f"--tables: no table that is captured matches {', '.join(listed)}; "
            "`pipeline status` names those that are not captured"
        )
    _require_unrouted(config, found)
    return sorted(describe_tables(source, stored, found), key=str)


def require_in_log(pipeline: Connection, stored: ReplicationSource, wanted: Iterable[PublishedTable]) -> None:
    """Raise FollowerRefusedError for tables that the log does not have completely."""
    names = {str(each) for each in wanted}
    unread = overview.incomplete(pipeline, stored.id, _ALL)
    lacking = [each.table for each in unread if each.table in names and each.reason != known_tables.EMPTY]
    if lacking:
        raise FollowerRefusedError(
            f"--copy log: the log does not have {first_names(lacking)} whole; read what is missing with "
            f"`pipeline backfill start {lacking[0]}`, or use --copy source"
        )
    rewritten = [each for each in rewrites.read_unsettled(pipeline, stored.id) if each.table in names]
    if rewritten:
        raise FollowerRefusedError(
            f"--copy log: DDL has changed values of {first_names(each.table for each in rewritten)} without events; "
            f"{rewritten[0].remedy}; or use --copy source"
        )


def _require_unrouted(config: Config, found: Iterable[CapturedTable]) -> None:
    elsewhere = sorted(f"{each.schema}.{each.name}" for each in found if is_routed(config, each.schema, each.name))
    if elsewhere:
        raise FollowerRefusedError(
            f"PIPELINE_ROUTES sends changes of {first_names(elsewhere)} to another events table than "
            f"{config.events_table}, from which followers are fed; name tables with --tables that are not routed, "
            "or change the routes"
        )


def describe_tables(
    source: Connection, stored: ReplicationSource, found: Sequence[CapturedTable]
) -> Iterable[PublishedTable]:
    """Yield these tables with their published columns and the names of their key columns."""
    names: dict[int, dict[int, str]] = {}
    values = {"oids": [each.oid for each in found]}
    for oid, attnum, name in source.execute(statement("followers.operating", "column_names"), values).fetchall():
        names.setdefault(oid, {})[attnum] = name
    publications = list(publication_ledger.known_publications(stored))
    deferrable = {oid for (oid,) in source.execute(_DEFERRABLE_KEYS, values).fetchall()}
    for each in found:
        relations = published_relations.read(source, each.oid, publications)
        published = {name for relation in relations for name in relation.columns or ()}
        columns = [name for name in names.get(each.oid, {}).values() if name in published or not relations]
        numbers = [int(part) for part in (each.key or "").split(", ") if part.isdecimal()] if _has_key(each) else []
        key = [names[each.oid][number] for number in numbers]
        yield PublishedTable(
            each.oid, each.schema, each.name, tuple(columns), tuple(key), bool(key) and each.oid in deferrable
        )


def _has_key(table: CapturedTable) -> bool:
    """Return True if all rows of the table are identified by the same columns."""
    return table.keyed and bool(table.key) and ";" not in (table.key or "")


def newest_seq(pipeline: Connection) -> int:
    """Return the newest seq of the log."""
    return int(queries.value(pipeline, "select pipeline.log_head()"))


def count_seqs(pipeline: Connection, seq: int) -> int:
    """Count the seqs of the log up to this one, without seqs that a restored log skipped; for rates."""
    return int(queries.value(pipeline, "select pipeline.seqs_between(null, 0, %s)", (seq,)))


def newest_of_source(pipeline: Connection, stored: ReplicationSource) -> int:
    """Return the newest seq of this source, which is as far as a follower can get; 0 before the first event."""
    return int(queries.value(pipeline, _NEWEST_OF_SOURCE, {"source": stored.id}))


def log_floor(pipeline: Connection) -> int:
    """Return the seq after which the log has every event."""
    return int(queries.value(pipeline, "select pipeline.log_floor()"))
