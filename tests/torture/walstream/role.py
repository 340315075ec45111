"""The role grpc as a process that may be killed, with a short hold and, if wanted, a promise broken on purpose."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import LiteralString

from pipeline.config import settings
from pipeline.postgres.queries import statement
from pipeline.process.signals import StopSignal
from pipeline.server import served_endpoints
from pipeline.wires.walstream import hub, store
from pipeline.wires.walstream.ledger import AcknowledgementLedger


def _last_of_any() -> None:
    """The position is that of the session that has acknowledged most, as in the system that this one follows."""

    def of(package: str, name: LiteralString) -> LiteralString:
        return statement(package, name).replace("min(coalesce(", "max(coalesce(")

    store.statement = of  # type: ignore[attr-defined, assignment]


def _by_lsn_alone() -> None:
    """An acknowledgement is taken for all events with that `pg_lsn`."""
    one = AcknowledgementLedger.acknowledge

    def acknowledge(self: AcknowledgementLedger, lsn: int) -> bool:
        found = False
        while one(self, lsn):
            found = True
        return found

    AcknowledgementLedger.acknowledge = acknowledge  # type: ignore[method-assign]


def _waits_for_no_session() -> None:
    """Who has left holds nothing."""
    hub.HOLD_SECONDS = 0.0


ANY_SESSION = "position by the last acknowledgement of any session"
MUTATIONS: dict[str, Callable[[], None]] = {
    ANY_SESSION: _last_of_any,
    "acknowledgement by LSN alone": _by_lsn_alone,
    "waits for no session": _waits_for_no_session,
}


def main(config: str, hold: str, mutation: str) -> None:
    """Until SIGTERM."""
    hub.HOLD_SECONDS = float(hold)
    if mutation:
        MUTATIONS[mutation]()
    stop = StopSignal(ignore_interrupt=True)
    served_endpoints.serve_grpc(settings.from_json(config), f"torture:{os.getpid()}", stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
