"""The server: refuses what cannot work, migrates, then runs each role in its own process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from setproctitle import setproctitle

from pipeline import logs
from pipeline.capture.replication import prepare
from pipeline.capture.source import sources
from pipeline.config import certificates, settings
from pipeline.config.settings import Config
from pipeline.config.values import OFF
from pipeline.errors import AddressInUseError, ConfigError, NotReadyError, PipelineError, SourceUnfitError
from pipeline.findings import CheckFinding
from pipeline.operate.preflight import check, legacy_log, source_roles
from pipeline.postgres import connections, databases, migrations, role_locks
from pipeline.postgres.connections import Connection
from pipeline.process import heartbeat, ports
from pipeline.process.child_errors import ChildErrors
from pipeline.process.fork_client import ForkServer
from pipeline.process.heartbeat import HeartbeatFile
from pipeline.process.supervisor import Supervisor
from pipeline.server import announcements, example
from pipeline.server.leadership import LeaderElection
from pipeline.snapshots import preflight

logger = logging.getLogger(__name__)

ROLES = ("snapshot", "replication", "shuffle", "schedule", "followers", "api", "grpc")
"""The roles, in the order in which they are stopped: upstream first."""
_UNFIT = ("source version", "source", "wal_level", "replication right")
"""Findings that make a source unfit, in the order in which `prepare.require_fit` asks."""
ANYWHERE = ("api", "grpc")
"""Roles that serve clients: any number of servers may run them, standbys too."""
_AT_ONCE = ("schedule",)
"""Roles that are stopped first of all: an export needs time to end, and processes nothing that the others leave."""


def serve(
    config: Config, only: str | None = None, accepted: Collection[str] = (), *, with_example: bool = False
) -> int:
    """Run the server until it is asked to stop; returns its exit status. Raises before anything is changed.

    `accepted`: names of findings of `pipeline check` with which it starts although they are errors.
    `with_example`: create the example's tables if the embedded source has no table.
    """
    setproctitle("pipeline serve" + (f" --only {only}" if only else ""))
    chosen = _chosen(config, only)
    if with_example:
        example.require_embedded(config)
    require_addresses(config, chosen)
    logs.catch()
    # Before any thread or connection, which a fork does not survive. It imports what roles need while this migrates.
    with (
        ChildErrors(logs.relay) as errors,
        ForkServer(partial(_serve_forks, chosen), _fork_server_command(chosen), errors) as fork_server,
        errors.listening(),
        databases.resolved(config) as resolved,
    ):
        if with_example:
            example.create_tables(resolved.source)
        boot(resolved, accepted, reads_source=not set(chosen) <= set(ANYWHERE))
        _log_start(config, resolved, chosen)
        name = f"serve {only}" if only else "serve"
        with (
            LeaderElection(resolved.database, name, lambda: _revive_embedded(config)) as leads,
            _beating(config, only) as beat,
        ):
            settings_line = resolved.model_copy(update={"log_format": logs.chosen(config.log_format)}).to_json()
            supervisor = Supervisor(
                chosen, fork_server, settings_line, leads=leads, always=ANYWHERE, at_once=_AT_ONCE, beat=beat
            )
            status = supervisor.run()
    announcements.announce_stop(status)
    return status


def _chosen(config: Config, only: str | None) -> tuple[str, ...]:
    """Return the roles to run. Raises ConfigError for gRPC alone if it is off."""
    served = tuple(role for role in ROLES if role != "grpc" or config.grpc_port != OFF)
    if only is None:
        return served
    if only not in served:
        raise ConfigError("PIPELINE_GRPC_PORT is off, and --only grpc would serve nothing: set a port")
    return (only,)


def boot(config: Config, accepted: Collection[str] = (), *, reads_source: bool = True) -> None:
    """Refuse what cannot work, then migrate the pipeline database to head.

    A server that does not read the source, or will stand by for another one, is not refused for the source's sake.
    """
    with connections.connect(config.database, "pipeline database", name="pipeline boot") as pipeline:
        migrations.refuse_unfit(pipeline)
        if reads_source := reads_source and not _is_led(pipeline):
            with connections.connect(config.source, "source", name="pipeline boot") as source:
                found = check.run(config, accepted)
                _refuse([finding for finding in found if finding.name == "pooler"])  # behind one, the rest says nothing
                try:
                    prepare.refuse_unfit(config, source, pipeline)
                except SourceUnfitError as error:
                    raise SourceUnfitError(f"{error}{_others(found)}") from error
                _log_findings(found, source_roles.SUPERUSER, action="serve.superuser")
                if sources.find_in_any(pipeline, config.source_id) is None:
                    _log_findings(found, preflight.NAME, preflight.RIGHTS, action="serve.snapshot")
        _refuse(found if reads_source else check.run(config, accepted, source_too=False))
        migrations.upgrade(config.database, config.events_table)
        legacy_log.ensure(config, pipeline)


@contextmanager
def _beating(config: Config, only: str | None) -> Iterator[Callable[[], None]]:
    """Return the heartbeat for `pipeline health` if no HTTP is served."""
    if only in (None, "api"):
        yield lambda: None
        return
    beat = HeartbeatFile(heartbeat.file(config.data_dir, only))
    try:
        yield beat
    finally:
        beat.end()


def _is_led(pipeline: Connection) -> bool:
    """True if another server reads the source, so that this one would stand by."""
    if migrations.current_revision(pipeline) is None:
        return False
    reads = role_locks.states(pipeline).get("replication")
    return reads is not None and reads.held


def _refuse(found: Sequence[CheckFinding]) -> None:
    """Raises NotReadyError for errors that neither waiting nor a running server can cure."""
    lasting = [finding for finding in found if finding.level == "error" and not finding.waits]
    if not lasting:
        return
    said = ", and ".join(f"{finding.name}: {finding.text} ({finding.remedy or 'see the docs'})" for finding in lasting)
    names = " ".join(f"--accept '{name}'" for name in dict.fromkeys(finding.name for finding in lasting))
    raise NotReadyError(f"{said}; fix it, or start with {names}")


def _others(found: Sequence[CheckFinding]) -> str:
    """Return all other findings that make a source unfit: one restart of the source may cure all."""
    errors = {finding.name: finding for finding in found if finding.level == "error"}
    first = next((name for name in _UNFIT if name in errors), "")
    others = [f"{each.name}: {each.text} ({each.remedy})" for name, each in errors.items() if name != first]
    return f". Also, {', and '.join(others)}" if others else ""


def _log_findings(found: Sequence[CheckFinding], *names: str, action: str) -> None:
    """Log the findings of these names: before the first start what reading the tables will be, and roles at each."""
    for finding in found:
        if finding.name in names:
            level = logging.INFO if finding.level == "ok" else logging.WARNING
            said = f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text
            logger.log(level, "%s", said, extra={"action": action})


def _serve_forks(chosen: tuple[str, ...]) -> int:
    from pipeline.server import roles

    return roles.serve_forks(chosen)


def _fork_server_command(chosen: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "pipeline.server.roles", *chosen]


def _revive_embedded(config: Config) -> None:
    """Start an embedded Postgres again that another server stopped, or that was killed."""
    if databases.needs_embedded(config):
        try:
            databases.embedded_server(config).start()
        except PipelineError as error:
            logger.error("%s", error, extra={"action": "embedded.failed"})


def _log_start(config: Config, resolved: Config, chosen: tuple[str, ...]) -> None:
    if databases.needs_embedded(config):
        server = databases.embedded_server(config)
        for name, given in ((databases.SOURCE, config.source_dsn), (databases.PIPELINE, config.database_dsn)):
            if given is None:
                logger.info(
                    "embedded Postgres, database %s: %s",
                    name,
                    server.psql_command(name),
                    extra={"action": "serve.embedded"},
                )
    log_addresses(config, chosen)
    logger.info("data in %s", config.data_dir.absolute(), extra={"action": "serve.folder"})
    logger.info(
        "serving %s from %s to %s",
        ", ".join(chosen),
        settings.describe(resolved.source),
        settings.describe(resolved.database),
        extra={"action": "serve.serving"},
    )


def require_addresses(config: Config, chosen: Collection[str]) -> None:
    """Raises AddressInUseError for a port that these roles need and that is taken, ConfigError for a wrong certificate.

    The default port of gRPC is not needed: the role waits for it, and everything else is served.
    """
    if "api" in chosen or "grpc" in chosen:
        certificates.context(config)
    if "api" in chosen:
        _require_free(config.http_host, config.http_port, "PIPELINE_HTTP_PORT")
    if "grpc" in chosen and "grpc_port" in config.model_fields_set:
        _require_free(config.http_host, int(config.grpc_port), "PIPELINE_GRPC_PORT")


def log_addresses(config: Config, chosen: Collection[str]) -> None:
    """Log the addresses of these roles, and who may use them without a token."""
    host = f"[{config.http_host}]" if ":" in config.http_host else config.http_host
    tls = config.http_certificate is not None
    if "api" in chosen:
        scheme = "https" if tls else "http"
        logger.info(
            "HTTP at %s://%s:%d, with the console at /console/",
            scheme,
            host,
            config.http_port,
            extra={"action": "serve.http"},
        )
    if "grpc" in chosen:
        how = "gRPC with TLS" if tls else "gRPC"
        logger.info("%s at %s:%s", how, host, config.grpc_port, extra={"action": "serve.grpc"})
    if config.open_wires and ("api" in chosen or "grpc" in chosen):
        logger.warning(
            "PIPELINE_OPEN_WIRES: any client that reaches this address may use %s without a token",
            ", ".join(config.open_wires),
            extra={"action": "serve.open_wires"},
        )


def _require_free(host: str, port: int, setting: str) -> None:
    if reason := ports.listen_error(host, port):
        raise AddressInUseError(
            f"cannot listen on {host}:{port}: {reason}; stop what uses the port, or choose another {setting}"
        )
