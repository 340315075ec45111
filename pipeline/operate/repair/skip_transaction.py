"""Skip a transaction that the source cannot send: find it, describe the loss, and ask the worker to skip it."""

from __future__ import annotations

import time

from pipeline.capture.source import blocked_transactions, sources
from pipeline.capture.source.blocked_transactions import BlockedTransaction
from pipeline.config.settings import Config
from pipeline.errors import ConfigError, PipelineError
from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn

WAIT_SECONDS = 10.0
"""Seconds that the command waits for the worker to skip the transaction."""
_POLL = 0.1


def find(config: Config, connection: Connection, position: str) -> BlockedTransaction:
    """Return the blocked transaction at this commit LSN.

    Raises PipelineError if the source stops elsewhere or nowhere, ConfigError if `position` is not an LSN.
    """
    try:
        wanted = lsn.parse(position)
    except ValueError as error:
        raise ConfigError(f"{error}; `pipeline status` shows the LSN to give") from None
    stored = sources.find(connection, config.source_id)
    stop = blocked_transactions.current(connection, stored.id) if stored else None
    if stop is None:
        raise PipelineError("the source is not stopped at a transaction; there is nothing to skip")
    if stop.commit_lsn != wanted:
        raise PipelineError(f"the source is stopped at {lsn.show(stop.commit_lsn)}, not at {lsn.show(wanted)}")
    return stop


def consequence(stop: BlockedTransaction) -> str:
    """Describe the changes that are lost by skipping the transaction."""
    known = (
        f"{stop.changes} of its changes were received, and it may have more"
        if stop.changes
        else "it may have any number of changes"
    )
    when = f"{stop.committed_at:%Y-%m-%d %H:%M:%S%z}"
    return (
        f"The whole transaction that committed at {lsn.show(stop.commit_lsn)} on {when} (xid {stop.xid}) will not be "
        f"in the log, not even its changes that can be sent: {known}. An event in its place will record that."
    )


def request(config: Config, connection: Connection, stop: BlockedTransaction) -> str:
    """Ask the worker to skip the transaction and wait up to WAIT_SECONDS; return the result as text."""
    stored = sources.find(connection, config.source_id)
    at = lsn.show(stop.commit_lsn)
    if stored is None or not blocked_transactions.request_skip(connection, stored.id, stop.commit_lsn):
        raise PipelineError(f"the source is no longer stopped at {at}; nothing was changed")
    server = role_locks.server_of(connection, "replication")
    until = time.monotonic() + (WAIT_SECONDS if server else 0)
    while True:
        now = blocked_transactions.current(connection, stored.id)
        if now is None or now.commit_lsn != stop.commit_lsn:
            return f"the transaction at {at} was skipped"
        if time.monotonic() >= until:
            who = f"the worker of {server}" if server else "the next `pipeline serve`"
            return f"noted: {who} will skip the transaction at {at}"
        time.sleep(_POLL)
