"""The role grpc as a process that may be killed, with a short hold and, if wanted, a promise broken on purpose."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from pipeline.config import settings
from pipeline.process.signals import Stop
from pipeline.readers.cursor.leases import Claim, Cursors
from pipeline.rpc import server
from pipeline.rpc.walstream import absent
from pipeline.rpc.walstream.hub import Hub
from pipeline.rpc.walstream.ledger import Ledger


def _last_of_any() -> None:
    """The position is that of whoever has acknowledged most, as in the system that this one follows."""

    def target(self: Hub) -> int:
        self._due = max([self._due, *(each.floor for each in self._sessions if each.claim is self._claim)])
        return self._due

    Hub._target = target  # type: ignore[method-assign]


def _by_lsn_alone() -> None:
    """An acknowledgement is taken for all events with that `pg_lsn`."""
    one = Ledger.acknowledge

    def acknowledge(self: Ledger, lsn: int) -> bool:
        found = False
        while one(self, lsn):
            found = True
        return found

    Ledger.acknowledge = acknowledge  # type: ignore[method-assign]


def _stored_later() -> None:
    """New sessions begin behind what was acknowledged before that is stored."""
    store = Cursors.advance

    async def advance(self: Cursors, claim: Claim, seq: int) -> None:
        claim.position = seq
        await asyncio.sleep(1.0)
        await store(self, claim, seq)

    Cursors.advance = advance  # type: ignore[method-assign]


def _nobody_is_waited_for() -> None:
    """Who has left holds nothing."""
    absent.HOLD_SECONDS = 0.0


ANY_SESSION = "position by the last acknowledgement of any session"
MUTATIONS: dict[str, Callable[[], None]] = {
    ANY_SESSION: _last_of_any,
    "acknowledgement by LSN alone": _by_lsn_alone,
    "position stored after it counts": _stored_later,
    "nobody is waited for": _nobody_is_waited_for,
}


def main(config: str, hold: str, mutation: str) -> None:
    """Until SIGTERM."""
    absent.HOLD_SECONDS = float(hold)
    if mutation:
        MUTATIONS[mutation]()
    stop = Stop(ignore_interrupt=True)
    server.run(settings.from_json(config), f"torture:{os.getpid()}", stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
