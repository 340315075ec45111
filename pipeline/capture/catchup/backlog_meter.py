"""Measures how far worker 0 is behind the source, and how many slots may share that backlog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import psycopg

from pipeline.capture.catchup import limits
from pipeline.capture.source import failover
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)
_IS_CARRIED = """\
select exists (
    select from pipeline.carried_transactions where source_id = %(source)s and commit_lsn >= %(position)s
)
"""
"""True if the slot may still replay transactions of earlier epochs that are in the log."""
_WAL_END = "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint"
"""The LSN at which the source writes its WAL now."""


class BacklogMeter:
    """Measures the backlog at the source; for one thread at a time.

    Logs the reason for fewer slots once, until the backlog is gone or the reason changes.
    """

    def __init__(
        self,
        config: Config,
        source: Connection,
        stored: ReplicationSource,
        session_slots: Callable[[Connection], Sequence[str]],
    ) -> None:
        """`session_slots` reads the slots of clients' sessions from the pipeline database; walsenders are reserved
        for them.
        """
        self._config = config
        self._source = source
        self._stored = stored
        self._session_slots = session_slots
        self._cores = limits.count_cores()
        self._warned: str | None = None
        self.most_helpers = (
            0 if config.catchup_bytes is None else limits.wanted_slots(config.catchup_max_slots, self._cores) - 1
        )
        """The most helpers that run at once. Before this process makes a plan, this limits a plan of an earlier
        process.
        """

    @property
    def may_be_shared(self) -> bool:
        """True if the settings and the cores allow more than one slot."""
        return self._config.catchup_bytes is not None and (
            limits.wanted_slots(self._config.catchup_max_slots, self._cores) > 1
        )

    def read_lag(self, position: int) -> tuple[int, int | None] | None:
        """Return where a backlog behind `position` ends, and where its last part ends: None if that has no end.

        None if the backlog is within the threshold, or not known. Copies of the slot would read what no standby has,
        and a failover loses. So the backlog ends where the standbys of `synchronized_standby_slots` are.
        """
        threshold = self._config.catchup_bytes
        if threshold is None or (end := self.wal_end()) is None:
            return None
        if end - position > threshold:
            try:
                until = failover.read_awaited(self._source).upto
            except psycopg.errors.InFailedSqlTransaction:  # another thread's transaction, which ends by itself
                return None
            if until is None:
                return end, None
            return (until, until) if until - position > threshold else None
        self._warned = None
        return None

    def wal_end(self) -> int | None:
        """Return where the source's WAL ends; None if the source cannot be asked just now."""
        try:
            return int(queries.value(self._source, _WAL_END))
        except psycopg.errors.InFailedSqlTransaction:  # another thread's transaction, which ends by itself
            return None

    def limit_slots(self, pipeline: Connection, position: int) -> int:
        """Return how many slots may read the WAL after `position`; logs the reason if they are fewer than wanted."""
        if queries.value(pipeline, _IS_CARRIED, {"source": self._stored.id, "position": position}):
            self._warn_once("catching up with one slot: the source may still send transactions of the previous epoch")
            return 1
        room = limits.read_capacity(self._source, self._session_slots(pipeline))
        allowed = limits.limit_slots(room, self._stored.slot, self._config.catchup_max_slots, self._cores)
        fewer = (
            allowed.held_by
            and f"catching up with {'one slot' if allowed.slots == 1 else f'{allowed.slots} slots'}: {allowed.held_by}"
        )
        self._warn_once(fewer or limits.warn_beyond_cores(self._config.catchup_max_slots, self._cores))
        return allowed.slots

    def _warn_once(self, reason: str | None) -> None:
        if reason is not None and reason != self._warned:
            logger.warning("%s", reason, extra={"action": "catchup.limited"})
        self._warned = reason or self._warned
