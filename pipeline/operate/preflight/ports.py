"""The preflight's part on the ports at which clients are served: a finding for each that another program has taken."""

from __future__ import annotations

from typing import Literal

from pipeline.config.settings import Config
from pipeline.config.values import OFF
from pipeline.findings import Finding, Findings
from pipeline.log import wakeups
from pipeline.postgres import migrations, queries, role_locks
from pipeline.postgres.connections import Connection
from pipeline.process import ports

NAME = "port"
_SERVED_PORT = """\
select exists (
    select from pg_stat_activity a join pg_stat_activity me on me.pid = pg_backend_pid()
    where a.application_name = %(name)s and a.datid = me.datid and a.client_addr is not distinct from me.client_addr)
"""
"""True if a session of this name is in this database, of a program on the machine of the one that asks."""


def run(config: Config, pipeline: Connection | None, *, away: bool) -> Findings:
    """Findings on the ports of HTTP and gRPC. `away`: the pipeline database does not answer."""
    yield from _of(config, pipeline, "HTTP", str(config.http_port), away=away)
    if config.grpc_port != OFF:
        yield from _of(config, pipeline, "gRPC", config.grpc_port, away=away)


def _of(config: Config, pipeline: Connection | None, what: str, port: str, *, away: bool) -> Findings:
    reason = ports.refused(config.http_host, int(port))
    if reason is None or (pipeline is not None and _serves(pipeline, what, port)):
        return
    setting = f"PIPELINE_{what.upper()}_PORT"
    text = f"{what} cannot listen at {config.http_host}:{port}: {reason}"
    if away:
        yield Finding("ok", NAME, f"{text}; whether this server does is known once the pipeline database answers")
        return
    waits = what == "gRPC" and "grpc_port" not in config.model_fields_set  # then the rest is served
    level: Literal["warning", "error"] = "warning" if waits else "error"
    yield Finding(level, NAME, text, f"stop what uses the port, or choose another {setting}", waits=True)


def _serves(pipeline: Connection, what: str, port: str) -> bool:
    """True if a server of this pipeline database serves there, from this machine as the database sees it."""
    if migrations.current_revision(pipeline) is None:
        return False
    if what == "gRPC" and (role := role_locks.states(pipeline).get("grpc")) and role.state == "waiting":
        return False
    values = {"name": f"{wakeups.SESSION} {port}"}
    return bool(queries.value(pipeline, _SERVED_PORT, values))
