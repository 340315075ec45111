"""The preflight: check both databases as `serve` will find them, and change nothing in either."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pipeline.capture.replication import prepare
from pipeline.capture.source import blocked_transactions, own_tables, publications, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.routes import dividing, never_used
from pipeline.config.settings import Config, describe
from pipeline.config.values import OFF
from pipeline.errors import PipelineError, SchemaError
from pipeline.exports import preflight as exports
from pipeline.exports import status
from pipeline.findings import CheckFinding, CheckFindings, SqlRemedy, first_names, guarded, of_error
from pipeline.log import dead_letters, jumps, wakeups
from pipeline.log.shuffling import routes
from pipeline.log.table import EventsTable
from pipeline.operate.preflight import legacy_log, source_checks, source_roles
from pipeline.operate.preflight.role_sql import SourceRoles
from pipeline.postgres import connections, databases, migrations, poolers, queries, role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier
from pipeline.process import ports
from pipeline.terminal import drawing
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream import preflight

NEWEST = 18
"""The newest major version that is tested."""

PORT = "port"
_SERVED_PORT = """\
select exists (
    select from pg_stat_activity a join pg_stat_activity me on me.pid = pg_backend_pid()
    where a.application_name = %(name)s and a.datid = me.datid and a.client_addr is not distinct from me.client_addr)
"""
"""True if a program on the machine of this session has a session of this name in this database."""
CLOCK_SECONDS = 10
"""Seconds by which the clocks of source and pipeline database may differ.

After a restore, the clocks decide how many seqs are skipped."""


@dataclass(frozen=True)
class _Server:
    version: int
    shown_version: str
    read_only: bool
    standby: bool
    encoding: str
    database: str


def run(config: Config, accepted: Collection[str] = (), *, source_too: bool = True) -> list[CheckFinding]:
    """Return every finding, in the order to show. An error named in `accepted` or PIPELINE_ACCEPT becomes a warning.

    `source_too`: check the source too, which matters only to the server that reads it.
    """
    accepted = frozenset([*accepted, *config.accept])
    found: list[CheckFinding] = []
    with ExitStack() as stack, ThreadPoolExecutor() as both:  # both at once: one may not answer
        asked = ("source", "pipeline database") if source_too else ("pipeline database",)
        opened = dict(zip(asked, both.map(partial(_open, stack, config), asked), strict=True))
        found += [finding for _, said in opened.values() for finding in said]
        pipeline = opened["pipeline database"][0]
        source = opened["source"][0] if source_too else None
        if pipeline is not None:
            found += guarded("pipeline database", lambda: _pipeline(config, pipeline))
        known = _known(config, pipeline, found)
        if source is not None:
            found += guarded("source", lambda: _server("source", _facts(source)))
            found += source_checks.run(config, _dsn(config, "source") or "", source, pipeline, known)
        if source is not None and pipeline is not None:
            found += guarded("same database", lambda: _same(config, source, pipeline))
            found += guarded("clocks", lambda: check_clocks(source, pipeline))
        away = pipeline is None and _dsn(config, "pipeline database") is not None
        found += guarded(PORT, lambda: check_ports(config, pipeline, away=away))
    found += guarded("export", lambda: exports.run(config))
    found += preflight.open_wires(config)
    return [_accept(finding, accepted) for finding in found]


def missing_roles(config: Config, roles: SourceRoles) -> list[CheckFinding]:
    """Find the rights that these roles lack at the source: one finding with its cure, or why they cannot be read."""
    with ExitStack() as stack:
        source, found = _open(stack, config, "source")
        if source is None:
            return list(found)
        pipeline, _ = _open(stack, config, "pipeline database")
        return list(guarded(source_roles.NAME, lambda: source_roles.missing(config, source, pipeline, roles)))


def _accept(finding: CheckFinding, accepted: Collection[str]) -> CheckFinding:
    return replace(finding, level="warning") if finding.level == "error" and finding.name in accepted else finding


def _open(stack: ExitStack, config: Config, what: str) -> tuple[Connection | None, Sequence[CheckFinding]]:
    """Open a connection, which `stack` closes; return it with findings on how it was opened."""
    found: list[CheckFinding] = []
    try:
        dsn = _dsn(config, what)
        if dsn is None:
            text = f"no DSN is set: `pipeline serve` will run an embedded Postgres under {config.data_dir.absolute()}"
            found.append(CheckFinding("ok", what, text))
            return None, found
        connection = stack.enter_context(connections.connect_promptly(dsn, what, name="pipeline check"))
        found.append(CheckFinding("ok", what, f"answers at {describe(dsn)}"))
        found += guarded("pooler", lambda: _pooler(stack, dsn, what, connection))
        return connection, found
    except PipelineError as error:
        found.append(of_error(what, error))
        return None, found


def _dsn(config: Config, what: str) -> str | None:
    """The DSN from the settings, else that of the embedded Postgres if it runs, else None."""
    given, name = config.database_dsn, databases.PIPELINE
    if what == "source":
        given, name = config.source_dsn, databases.SOURCE
    if given is not None:
        return config.source if what == "source" else config.database
    server = databases.embedded_server(config)
    return server.dsn(name) if server.running() else None


def _pooler(stack: ExitStack, dsn: str, what: str, first: Connection) -> CheckFindings:
    second = stack.enter_context(connections.connect(dsn, what, name="pipeline check"))
    found = poolers.detect_pooler(first, second)
    if finding := pooler(what, found.in_between, found.shared):
        yield finding


def pooler(what: str, in_between: bool, shared: bool) -> CheckFinding | None:
    """A finding on a pooler; None if there is none.

    `in_between`: the program that answered is not the server. `shared`: one server process served two sessions at a
    time.
    """
    remedy = f"connect to the server of the {what} directly, not through a pooler such as pgbouncer"
    if shared:
        return CheckFinding(
            "error", "pooler", f"a pooler shares the {what}'s sessions: locks and replication break", remedy
        )
    if in_between:
        return CheckFinding("warning", "pooler", f"a pooler or proxy is in front of the {what}", remedy)
    return None


def _facts(connection: Connection) -> _Server:
    facts = queries.one(connection, _Server, statement("operate.preflight", "server_facts"))
    assert facts is not None  # noqa: S101  the database we are in
    return facts


def _server(what: str, facts: _Server) -> CheckFindings:
    major = facts.version // 10000
    name = f"{what} version"
    if facts.version < prepare.MIN_VERSION:
        yield CheckFinding("error", name, f"Postgres {facts.shown_version}, but 15 or newer is needed", "upgrade it")
    elif major > NEWEST:
        yield CheckFinding(
            "warning", name, f"Postgres {facts.shown_version} is newer than the newest tested ({NEWEST})"
        )
    else:
        yield CheckFinding("ok", name, f"Postgres {facts.shown_version}")
    if what == "source" and facts.encoding == "SQL_ASCII":
        text = f"database {facts.database} is SQL_ASCII: a value that is not UTF-8 would stop replication permanently"
        yield CheckFinding(
            "warning", "source encoding", text, "store UTF-8 only, or move to a database encoded in UTF8"
        )


def _pipeline(config: Config, connection: Connection) -> CheckFindings:
    facts = _facts(connection)
    yield from _server("pipeline database", facts)
    if facts.encoding != "UTF8":
        text = f"database {facts.database} is encoded in {facts.encoding}, which cannot hold every text"
        remedy = "create the pipeline database with encoding 'UTF8' template template0"
        yield CheckFinding("error", "pipeline database encoding", text, remedy)
    if facts.read_only:
        text = f"database {facts.database} is a standby" if facts.standby else f"database {facts.database} is read-only"
        yield CheckFinding("error", "pipeline database", text, "set PIPELINE_DATABASE_DSN to one that can be written")
    yield from guarded("pipeline schema", lambda: _schema(connection))
    yield from guarded("events table", lambda: legacy_log.check(connection, EventsTable.parse(config.events_table)))
    yield from guarded("standbys", lambda: check_standbys(connection))
    yield from guarded("restores", lambda: check_log_place(connection))
    yield from guarded("routes", lambda: check_routes(config, connection))
    yield from guarded("dead letters", lambda: _blocked(config, connection))


def _schema(connection: Connection) -> CheckFindings:
    try:
        migrations.refuse_unfit(connection)
    except SchemaError as error:
        grants = tuple(migrations.missing_grants(connection))
        yield replace(of_error("pipeline schema", error), cure=SqlRemedy("pipeline", grants) if grants else None)
        return
    revision, newest = migrations.current_revision(connection), migrations.head()
    if revision == newest:
        text = f"at revision {revision}, the newest"
    elif revision is None:
        text = f"not created yet; `pipeline serve` will create it (revision {newest}), and this user may"
    else:
        text = f"at revision {revision}; `pipeline serve` will migrate it to {newest}"
    yield CheckFinding("ok", "pipeline schema", text)


def _known(config: Config, pipeline: Connection | None, found: list[CheckFinding]) -> ReplicationSource | None:
    """The source as the pipeline database knows it; None if that database was never migrated."""
    if pipeline is None or any(finding.name == "pipeline schema" and finding.level == "error" for finding in found):
        return None
    try:
        return sources.find_in_any(pipeline, config.source_id)
    except PipelineError as error:
        found.append(of_error("pipeline schema", error))
        return None


def _same(config: Config, source: Connection, pipeline: Connection) -> CheckFindings:
    if not own_tables.shares_database(source, pipeline):
        return
    text = "source and pipeline database are the same: writes to the log are decoded, too, but not captured"
    yield CheckFinding("warning", "same database", text, "use a separate pipeline database, on this server or another")
    published = publications.tables_of(source, config.publication)
    own = own_tables.read(source, pipeline, config.events_tables)
    if ours := [str(table) for table in published if own.includes(table.schema, [str(table)])]:
        text = f'"{config.publication}" publishes the server\'s own tables ({first_names(ours)}): writes to them'
        text += " are sent to the server, which costs time, but are not captured"
        yield CheckFinding(
            "warning", "own tables", text, f"alter publication {identifier(config.publication)} set table …"
        )


def _blocked(config: Config, connection: Connection) -> CheckFindings:
    """Yield findings on changes that cannot reach the log: a blocked transaction, and dead letters."""
    stored = sources.find_in_any(connection, config.source_id)
    if stored is None:
        return
    stop = blocked_transactions.current(connection, stored.id)
    if stop is not None:
        at = lsn.show(stop.commit_lsn)
        text = f"cannot send the transaction that commits at {at}: {stop.cause} (SQLSTATE {stop.sqlstate})"
        remedy = f"fix the cause, or run `{blocked_transactions.SKIP} {at}` to continue without it"
        yield CheckFinding("error", "source stops", text, remedy, waits=True)
    parked = dead_letters.counts(connection)["parked"]
    if parked:
        text = f"{drawing.count(parked, 'change')} could not be written to the log"
        yield CheckFinding(
            "warning", "dead letters", text, "see `pipeline dead-letters list`, then retry or discard them"
        )


def check_ports(config: Config, pipeline: Connection | None, *, away: bool) -> CheckFindings:
    """Yield findings on the ports of HTTP and gRPC. `away`: the pipeline database does not answer."""
    yield from _port(config, pipeline, "HTTP", str(config.http_port), away=away)
    if config.grpc_port != OFF:
        yield from _port(config, pipeline, "gRPC", config.grpc_port, away=away)


def _port(config: Config, pipeline: Connection | None, what: str, port: str, *, away: bool) -> CheckFindings:
    reason = ports.listen_error(config.http_host, int(port))
    if reason is None or (pipeline is not None and _is_served(pipeline, what, port)):
        return
    setting = f"PIPELINE_{what.upper()}_PORT"
    text = f"{what} cannot listen at {config.http_host}:{port}: {reason}"
    if away:
        yield CheckFinding(
            "ok",
            PORT,
            f"{text}; this server may be the one that uses it, which is known once the pipeline database answers",
        )
        return
    waits = what == "gRPC" and "grpc_port" not in config.model_fields_set  # then the rest is served
    level: Literal["warning", "error"] = "warning" if waits else "error"
    yield CheckFinding(level, PORT, text, f"stop what uses the port, or choose another {setting}", waits=True)


def _is_served(pipeline: Connection, what: str, port: str) -> bool:
    """True if a server of this pipeline database uses the port on this machine, as far as the database can tell."""
    if migrations.current_revision(pipeline) is None:
        return False
    if what == "gRPC" and (role := role_locks.states(pipeline).get("grpc")) and role.state == "waiting":
        return False
    values = {"name": f"{wakeups.SESSION} {port}"}
    return bool(queries.value(pipeline, _SERVED_PORT, values))


def check_clocks(source: Connection, pipeline: Connection) -> CheckFindings:
    """Warn if the two clocks differ by more than CLOCK_SECONDS, beyond the time that reading them takes."""
    before, there, after = jumps.clock(source), jumps.clock(pipeline), jumps.clock(source)
    seconds = max(before - there, there - after, 0) / 1_000_000
    if seconds > CLOCK_SECONDS:
        text = f"the clocks of source and pipeline database differ by {seconds:,.0f} s"
        yield CheckFinding(
            "warning", "clocks", f"{text}: after a restore, they decide how many seqs the log skips", "set both by NTP"
        )


def check_standbys(pipeline: Connection) -> CheckFindings:
    """Warn if the cluster has only asynchronous standbys: a promoted one may lack events that readers have seen."""
    found = int(queries.value(pipeline, statement("operate.preflight", "asynchronous_standbys")))
    if found:
        text = "if a standby of the pipeline database is promoted, it may lack events that readers have seen"
        remedy = "set synchronous_standby_names there; without it readers get some changes again after a promotion"
        yield CheckFinding("warning", "standbys", f"{text}: none of them is synchronous", remedy)


def check_log_place(pipeline: Connection) -> CheckFindings:
    """Warn if the provider hides the cluster or timeline, by which a restore of the log is noticed."""
    if migrations.current_revision(pipeline) != migrations.head():
        return
    found = pipeline.execute("select system_identifier is null, timeline is null from pipeline.log_place()").fetchone()
    names = ("its cluster", "its timeline")
    if refused := [name for name, missing in zip(names, found or (), strict=True) if missing]:
        text = f"the pipeline database does not show its {' and '.join(refused)}: the server may not notice a restore"
        yield CheckFinding("warning", "restores", text, "run `pipeline sources adopt --restored` after each restore")


def check_routes(config: Config, connection: Connection) -> CheckFindings:
    """Yield findings on routes. Raises ConfigError if the default table differs but may not change now."""
    _require_default(config, connection)
    for later, earlier in never_used(config.routes):
        text = f"route {later} never gets a change: route {earlier} comes first and takes all of them"
        yield CheckFinding("warning", "routes", text, f"put route {later} first, or remove it")
    if status.why_off(config) is None:
        for number in dividing(config.routes):
            text = f"route {number} takes some actions only: its tables have no `current` in the lake"
            yield CheckFinding(
                "warning", "routes", text, "remove `actions` from the route, or read `changes` of both lakes"
            )
    wrong = [found for name in config.events_tables[1:] for found in _route_table(connection, EventsTable.parse(name))]
    yield from wrong
    if config.routes and not wrong:
        yield CheckFinding(
            "ok", "routes", f"{len(config.routes)} to {first_names(config.events_tables[1:]) or config.events_table}"
        )


def _require_default(config: Config, connection: Connection) -> None:
    source = sources.find_in_any(connection, config.source_id)
    if source is not None:
        routes.require_default(connection, source.id, EventsTable.parse(config.events_table))


def _route_table(connection: Connection, table: EventsTable) -> CheckFindings:
    """Yield findings on the table of a route."""
    for finding in guarded("routes", lambda: legacy_log.check(connection, table, "routes", "the route")):
        if finding.level != "ok":
            yield replace(finding, remedy=finding.remedy.replace("PIPELINE_EVENTS_TABLE", "the route"))
