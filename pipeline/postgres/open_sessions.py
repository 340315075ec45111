"""The open sessions of this process. The process reports what they wait for, and ends those that wait when it stops."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from typing import Any

import psycopg
from psycopg import pq

_lock = threading.Lock()
_dsns = weakref.WeakKeyDictionary["psycopg.Connection[Any] | psycopg.AsyncConnection[Any]", str]()


def add(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], dsn: str) -> None:
    """Remember the session for as long as its connection exists."""
    with _lock:
        _dsns[connection] = dsn


def active() -> dict[str, list[int]]:
    """Return the backend pids of the sessions that run a statement now, by DSN."""
    with _lock:
        known = list(_dsns.items())
    found = defaultdict[str, list[int]](list)
    for connection, dsn in known:
        if not connection.closed and connection.info.transaction_status == pq.TransactionStatus.ACTIVE:
            found[dsn].append(connection.info.backend_pid)
    return found
