"""Retry or discard dead letters on request, and report the result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import PipelineError
from pipeline.log import dead_letters
from pipeline.log.dead_letters import DeadLetter
from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection

WAIT_SECONDS = 5.0
"""Seconds that the command waits for the shuffler to retry."""
_POLL = 0.1


@dataclass(frozen=True)
class RetryOutcome:
    """The dead letters to retry. `server`: the server whose shuffler writes them; None if no server runs."""

    letters: list[DeadLetter]
    server: str | None

    @property
    def waiting(self) -> int:
        """The number of dead letters that were not retried yet."""
        return sum(letter.state == "retrying" for letter in self.letters)

    @property
    def failed(self) -> int:
        """The number of dead letters that still could not be written."""
        return sum(letter.state == "parked" for letter in self.letters)


def retry(connection: Connection, ids: Sequence[int] | None) -> RetryOutcome:
    """Request a retry of parked dead letters (None: all) and wait up to WAIT_SECONDS for the result.

    Raises PipelineError for an id that is not parked.
    """
    asked = _known(connection, ids, dead_letters.request_retry(connection, ids), "retried")
    server = role_locks.server_of(connection, "shuffle")
    until = time.monotonic() + (WAIT_SECONDS if server else 0)
    while True:
        found = RetryOutcome([each for each in dead_letters.find(connection, None) if each.id in asked], server)
        if not found.waiting or time.monotonic() >= until:
            return found
        time.sleep(_POLL)


def discard(connection: Connection, ids: Sequence[int] | None) -> int:
    """Discard parked dead letters (None: all); return how many. Raises PipelineError for an id that is not parked."""
    return len(_known(connection, ids, dead_letters.discard(connection, ids), "discarded"))


def _known(connection: Connection, ids: Sequence[int] | None, done: Sequence[int], what: str) -> set[int]:
    states = {each.id: each.state for each in dead_letters.find(connection, None)} if ids else {}
    wrong = [f"{each} is {states.get(each, 'unknown')}" for each in ids or () if each not in done]
    if wrong:
        others = f"; the other {len(done)} will be {what}" if done else ""
        raise PipelineError(f"only parked dead letters can be {what}, but {', '.join(wrong)}{others}")
    return set(done)
