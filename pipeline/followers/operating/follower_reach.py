"""Waits until a follower has everything that the source has now, according to the follower's own position."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import comparison, source_rows
from pipeline.errors import DatabaseUnavailableError, FollowerError
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.operating import status
from pipeline.followers.operating.follower_tables import newest_of_source
from pipeline.postgres import reading_session, session_settings
from pipeline.postgres.connections import Connection

STALLED_SECONDS = 60.0
"""Seconds that the follower may stall before the wait fails."""
_POLL, _ASK_SECONDS = 0.02, 0.5
"""Seconds between two checks of its position, and of its state."""


@dataclass(frozen=True)
class ReachedPosition:
    """Everything that committed before `lsn` is in the log up to `seq`, and in the follower."""

    lsn: int
    seq: int


class FollowerCatchUp:
    """Waits until one follower has caught up. It uses the connections only during calls."""

    def __init__(
        self, source: Connection, pipeline: Connection, follower: Connection, stored: ReplicationSource, name: str
    ) -> None:
        self._source, self._pipeline, self._follower, self._stored = source, pipeline, follower, stored
        self._name, self._installed = name, False

    def __call__(self) -> ReachedPosition:
        """Wait until the follower has everything that a snapshot of the source can contain now.

        Raises FollowerError if the follower is paused or stopped, DatabaseUnavailableError if log or follower stall.
        """
        marked = source_rows.mark(self._source)
        comparison.wait_for_log(self._pipeline, self._stored, marked)
        seq = newest_of_source(self._pipeline, self._stored)
        last, since, asked = -1, time.monotonic(), 0.0
        while (here := self._position()) < seq:
            now = time.monotonic()
            if here != last:
                last, since = here, now
            if now > asked + _ASK_SECONDS:
                self._require_going_on(now - since, here, seq)
                asked = now
            time.sleep(_POLL)
        return ReachedPosition(marked, seq)

    def _position(self) -> int:
        """Return the follower's seq, or 0 before its applier has begun and created the table of positions."""
        with reading_session.transaction(self._follower, session_settings.SOURCE):
            self._installed = self._installed or position.schema_version(self._follower) is not None
            found = position.find(self._follower, self._stored.id, self._name) if self._installed else None
        return found.seq if found else 0

    def _require_going_on(self, stood_still: float, here: int, seq: int) -> None:
        found = status.show(self._pipeline, self._name)
        what = connecting.label(self._name)
        if found.state in ("paused", "stopped"):
            why = f": {found.reason}" if found.reason else ""
            remedy = f"; {found.remedy}" if found.remedy else ""
            raise FollowerError(
                f"{what} is {found.state} at seq {here} of {seq}{why}; it can be compared while it follows{remedy}"
            )
        if stood_still > STALLED_SECONDS:
            why = f" ({found.reason})" if found.reason else ""
            raise DatabaseUnavailableError(
                f"{what} has made no progress at seq {here} of {seq} for {STALLED_SECONDS:.0f} s{why}; "
                f"`pipeline followers show {self._name}` says more. It can be compared only while it follows"
            )
