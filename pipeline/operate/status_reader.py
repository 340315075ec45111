"""Reads the status; keeps for a minute warnings, and if the lake is lost, which take long to find out."""

from __future__ import annotations

import time
from dataclasses import replace

import psycopg

from pipeline.api.shared_reads import SHARED_SECONDS
from pipeline.capture.source.failover import FailoverWatch
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.exports import status as export_status
from pipeline.operate import role_warnings, status
from pipeline.operate.status import PipelineStatus
from pipeline.postgres.kept_connection import CheckConnections

PATIENCE_SECONDS = 4.4
"""Seconds that the pipeline database has to answer; the status reads the source meanwhile, which has 2 s, twice."""
SLOW_SECONDS = 60.0
"""Seconds between two readings of the warnings, which open sessions as other users, and of the lake's bucket."""


class StatusReader:
    """Reads the status, once or repeatedly. One reading at a time."""

    def __init__(self) -> None:
        self._warnings: list[str] = []
        self._warnings_until = self._lake_until = float("-inf")
        self._lake_problem: str | None = None
        self._failover = FailoverWatch()

    def read(self, config: Config, patience: float = 60.0, opened: CheckConnections | None = None) -> PipelineStatus:
        """Return the status as `status.collect`, with the same errors, and with warnings."""
        if config.source_dsn is not None:  # the embedded Postgres has no standby
            self._failover.begin(config.source, config.slot)
        now = replace(status.collect(config, patience, opened), failover=self._failover.result())
        if now.source_lsn is not None and time.monotonic() >= self._warnings_until:
            self._warnings = _read_warnings(config)
            self._warnings_until = time.monotonic() + SLOW_SECONDS
        if now.exports is None:
            return replace(now, warnings=self._warnings)
        if time.monotonic() >= self._lake_until:
            self._lake_problem = export_status.lake_problem(config, now.exports)
            self._lake_until = time.monotonic() + SLOW_SECONDS
        exports = replace(now.exports, problem=now.exports.problem or self._lake_problem)
        return replace(now, warnings=self._warnings, exports=exports)


class SharedStatus:
    """The status for all answers that show a part of it, read again after SHARED_SECONDS. For one thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._reader = StatusReader()
        self._known: PipelineStatus | None = None
        self._until = float("-inf")

    def read(self, opened: CheckConnections) -> PipelineStatus:
        """Return the status. Raises DatabaseUnavailableError if the pipeline database does not answer."""
        if self._known is None or time.monotonic() >= self._until:
            self._known = None
            self._known = self._reader.read(self._config, PATIENCE_SECONDS, opened)
            self._until = time.monotonic() + SHARED_SECONDS
        return self._known


def _read_warnings(config: Config) -> list[str]:
    try:
        return role_warnings.read(config)
    except (PipelineError, psycopg.Error):  # of which the status says enough
        return []
