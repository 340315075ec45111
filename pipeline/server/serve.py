"""The server: refuses what cannot work, migrates, then runs each role in its own process."""

from __future__ import annotations

import logging
import socket
import sys
from functools import partial

from setproctitle import setproctitle

from pipeline.api import certificates
from pipeline.capture.replication import prepare
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import AddressInUse, PipelineError
from pipeline.operate.preflight import legacy_log
from pipeline.postgres import databases, migrations
from pipeline.process.fork_client import ForkServer
from pipeline.process.supervisor import Supervisor
from pipeline.server.leadership import Leadership

logger = logging.getLogger(__name__)

ROLES = ("replication", "shuffle", "schedule", "api")
"""In the order in which they are stopped: upstream first."""


def serve(config: Config, only: str | None = None) -> int:
    """Run the server until it is asked to stop; returns its exit status. Raises before anything is changed."""
    setproctitle("pipeline serve" + (f" --only {only}" if only else ""))
    chosen = (only,) if only else ROLES
    if "api" in chosen:
        certificates.context(config)
        _require_port(config)
    # Before any thread or connection, which a fork does not survive. It imports what roles need while this migrates.
    with (
        ForkServer(partial(_serve_forks, chosen), _fork_server_command(chosen)) as fork_server,
        databases.resolved(config) as resolved,
    ):
        boot(resolved)
        _log_start(config, resolved, chosen)
        name = f"serve {only}" if only else "serve"
        with Leadership(resolved.database, name, lambda: _revive_embedded(config)) as leads:
            return Supervisor(chosen, fork_server, resolved.to_json(), leads=leads, always=("api",)).run()


def boot(config: Config) -> None:
    """Refuse what cannot work, then migrate the pipeline database to head."""
    source, pipeline = prepare.connect(config, name="pipeline boot")
    with source, pipeline:
        migrations.refuse_unfit(pipeline)
        prepare.refuse_unfit(config, source, pipeline)
        migrations.upgrade(config.database, config.events_table)
        legacy_log.ensure(config, pipeline)


def _serve_forks(chosen: tuple[str, ...]) -> int:
    from pipeline.server import roles

    return roles.serve_forks(chosen)


def _fork_server_command(chosen: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "pipeline.server.roles", *chosen]


def _revive_embedded(config: Config) -> None:
    """An embedded Postgres that another server stopped, or that was killed, is started again."""
    if databases.needs_embedded(config):
        try:
            databases.embedded_server(config).start()
        except PipelineError as error:
            logger.error("%s", error, extra={"action": "embedded.failed"})


def _require_port(config: Config) -> None:
    family = socket.AF_INET6 if ":" in config.http_host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.http_host, config.http_port))
        except OSError as error:
            raise AddressInUse(
                f"cannot listen on {config.http_host}:{config.http_port}: {error.strerror}; "
                "stop what uses the port, or choose another PIPELINE_HTTP_PORT"
            ) from error


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
    logger.info(
        "serving %s from %s to %s",
        ", ".join(chosen),
        settings.describe(resolved.source),
        settings.describe(resolved.database),
        extra={"action": "serve.serving"},
    )
