"""Adds a follower, and refuses an unfit database at once, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import psycopg

from pipeline.capture import source_requirements
from pipeline.capture.source import missing_source, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, FollowerError, FollowerRefusedError
from pipeline.followers import connecting, names, registry
from pipeline.followers.admission import identity, needed_objects, rights, server, tables
from pipeline.followers.admission.needed_objects import FollowerLacksError
from pipeline.followers.admission.server import ServerFacts
from pipeline.followers.admission.tables import PublishedTable
from pipeline.followers.copying import missing_tables
from pipeline.followers.operating import follower_tables, status
from pipeline.followers.operating.status import FollowerStatus
from pipeline.followers.registry import DatabaseIdentity, FollowerOptions, NamedTable, RegisteredPosition
from pipeline.postgres.connections import Connection

_PROGRAM = "pipeline followers"


@dataclass(frozen=True)
class AddedFollower:
    """A follower that was added. `warnings`: one line for each thing that may be intended."""

    follower: FollowerStatus
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _AdmittedFollower:
    name: str
    stored: ReplicationSource
    tables: list[NamedTable]
    database: DatabaseIdentity
    begins: RegisteredPosition
    warnings: list[str]


def add(
    config: Config, source: Connection, pipeline: Connection, name: str | None, dsn: str, options: FollowerOptions
) -> AddedFollower:
    """Register the database at `dsn` as a follower, which a running server then fills. Its database is not changed.

    `name`: None to derive a name from the DSN. Raises FollowerRefusedError with the problem and the remedy,
    DatabaseUnavailableError if the database does not answer, and FollowerError if no source is known.
    """
    admitted = _examine(config, source, pipeline, name, dsn, options)
    chosen, stored = admitted.name, admitted.stored
    registry.add(pipeline, stored.id, chosen, dsn, options, admitted.database, admitted.begins, admitted.tables)
    _require_kept(pipeline, chosen, options, admitted.begins)
    return AddedFollower(status.show(pipeline, chosen), admitted.warnings)


def missing_sql(
    config: Config, source: Connection, pipeline: Connection, name: str | None, dsn: str, options: FollowerOptions
) -> list[str]:
    """Return the SQL by which an administrator creates missing objects and grants missing rights. Adds no follower.

    Raises the errors of `add`, except those that this SQL cures.
    """
    try:
        _examine(config, source, pipeline, name, dsn, options)
    except FollowerLacksError as missing:
        return missing.script
    return []


def _examine(
    config: Config, source: Connection, pipeline: Connection, name: str | None, dsn: str, options: FollowerOptions
) -> _AdmittedFollower:
    if options.truncate and options.copy == "none":
        raise FollowerRefusedError("--truncate empties tables before a copy, and --copy none makes none; leave one out")
    parts = connecting.parse_dsn(dsn)
    taken = registry.list_names(pipeline)
    chosen = names.make_name(connecting.with_defaults(parts), taken) if name is None else name
    names.require_free(chosen, taken)
    stored = sources.find(pipeline, config.source_id)
    _require_slot(config, source, pipeline, stored)
    if stored is None:
        raise FollowerError(missing_source.explain_missing_source(pipeline))
    wanted = follower_tables.choose_tables(config, source, pipeline, stored, options.tables)
    if options.copy == "log":
        follower_tables.require_in_log(pipeline, stored, wanted)
    return _admit(source, pipeline, stored, chosen, dsn, wanted, options)


def _require_slot(config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource | None) -> None:
    """Raise FollowerError with all reasons why the source cannot have the slot that all followers need."""
    wrong = [
        f"{finding.name}: {finding.text}; {finding.remedy}"
        for finding in source_requirements.check_slot(config, source, pipeline, stored)
        if finding.level == "error" and finding.name not in config.accept
    ]
    if wrong:
        raise FollowerError(f"source: {'; and '.join(wrong)}")


def _admit(
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    name: str,
    dsn: str,
    wanted: Sequence[PublishedTable],
    options: FollowerOptions,
) -> _AdmittedFollower:
    """Examine the database, and refuse it or return where the follower begins."""
    with (
        connecting.connect(name, dsn, program=_PROGRAM, prepare_threshold=None) as follower,
        connecting.connect(name, dsn, program=_PROGRAM) as second,
    ):
        try:
            server.require_direct(name, follower, second)
            facts = server.read(follower)
            server.require_writable(name, facts)
            database = identity.read(follower)
            warnings = [
                *server.warnings(name, facts),
                *_check_other_databases(source, pipeline, name, follower, database),
            ]
            server.require_known_schema(name, follower)
            found = tables.require_fit(name, follower, wanted, options)
            listed = [NamedTable(each.oid, each.schema, each.name) for each in wanted]
            absent = [each.table_oid for each in missing_tables.lacking(follower, listed)]
            missing = needed_objects.find(source, follower, absent) if absent else []
            refused = [*rights.missing_on_server(follower, facts), *rights.missing_on_tables(facts, found)]
            needed_objects.require(connecting.label(name), follower, facts.user_name, refused, missing)
            tables.require_unfed(name, follower, facts, stored.id, wanted)
            if options.copy != "none" and not options.truncate:
                tables.require_empty(name, follower, found)
            begins, hints = _first_position(pipeline, stored, name, follower, facts, options)
        except psycopg.OperationalError as error:
            if follower.broken or second.broken:
                raise connecting.unavailable(name, dsn, error) from error
            raise
    return _AdmittedFollower(name, stored, listed, database, begins, [*warnings, *hints])


def _check_other_databases(
    source: Connection, pipeline: Connection, name: str, follower: Connection, database: DatabaseIdentity
) -> Iterator[str]:
    """Refuse the source, the pipeline database and another follower; warn of a database in the same cluster."""
    what = connecting.label(name)
    beside = []
    for other, which in ((source, "the source"), (pipeline, "the pipeline database")):
        found = identity.find_relation(follower, other)
        if found == "same database":
            raise FollowerRefusedError(
                f"{what}: database {database.database_name} is {which} itself; name another database"
            )
        if found == "same cluster":
            beside.append(which)
    _require_no_follower(pipeline, what, follower, database)
    if beside:
        yield (
            f"{what}: it is in the same cluster as {' and '.join(beside)}: they share its disk and its load, and fail "
            "together"
        )


def _require_no_follower(pipeline: Connection, what: str, follower: Connection, database: DatabaseIdentity) -> None:
    """Refuse a database that is a follower already. Only a follower with the same numbers can be this database."""
    for known in registry.find(pipeline):
        if (known.system_identifier, known.database_oid) != (database.system_identifier, database.database_oid):
            continue
        remedy = f"name another database, or remove that one first: `pipeline followers remove {known.name}`"
        try:
            with connecting.connect(known.name, known.dsn, program=_PROGRAM) as other:
                found = identity.find_relation(follower, other)
        except DatabaseUnavailableError as error:
            raise FollowerRefusedError(
                f'{what}: it may be the database of the follower "{known.name}", which does not answer ({error}); '
                f"{remedy}"
            ) from error
        if found == "same database":
            raise FollowerRefusedError(
                f'{what}: database {database.database_name} is the follower "{known.name}" already; {remedy}'
            )


def _first_position(
    pipeline: Connection,
    stored: ReplicationSource,
    name: str,
    follower: Connection,
    facts: ServerFacts,
    options: FollowerOptions,
) -> tuple[RegisteredPosition, list[str]]:
    """Return the position after which the follower needs the log, and hints about it."""
    left = server.positions(follower, facts, stored.id)
    begins = (
        RegisteredPosition(0) if options.copy == "log" else RegisteredPosition(follower_tables.newest_seq(pipeline))
    )
    hints = []
    if options.copy == "none":
        begins = left.get(name, begins)
        hints = [
            f'{connecting.label(name)}: it has the position of an earlier follower "{other}"; to continue there, '
            "remove this one and add it by that name"
            for other in sorted(left)
            if name not in left
        ]
    elif name in left:
        raise FollowerRefusedError(
            f"{connecting.label(name)}: it has been a follower of that name, and is at seq {left[name].seq}; go on "
            f"from there with --copy none, choose another name, or delete that position there: "
            f"{server.forget_statement(stored.id, name)}"
        )
    if reason := _missing_events(pipeline, name, options, begins):
        raise FollowerRefusedError(reason)
    return begins, hints


def _require_kept(pipeline: Connection, name: str, options: FollowerOptions, begins: RegisteredPosition) -> None:
    """Check again that the log has the needed events: retention waits for the follower only since it was stored."""
    if reason := _missing_events(pipeline, name, options, begins):
        registry.remove(pipeline, name)
        raise FollowerRefusedError(reason)


def _missing_events(
    pipeline: Connection, name: str, options: FollowerOptions, begins: RegisteredPosition
) -> str | None:
    """Return the reason for a refusal if the log lacks events that the follower needs; else None."""
    floor = follower_tables.log_floor(pipeline)
    if floor <= begins.seq:
        return None
    if options.copy == "log":
        return f"--copy log: retention has dropped the log's events up to seq {floor}; use --copy source"
    return (
        f"{connecting.label(name)}: it is at seq {begins.seq}, and retention has dropped the log's events up to seq "
        f"{floor}; use --copy source --truncate"
    )
