"""Who holds each role of `serve`: one session-level advisory lock a role, and a row that says how its holder is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from psycopg.rows import class_row

from pipeline.db import Connection, sql

State = Literal["starting", "running", "waiting", "stopped", "failed"]


@dataclass(frozen=True)
class RoleState:
    """How a role was when its holder last said so. `held`: whether a live session holds its lock now."""

    role: str
    server: str
    pid: int
    state: str
    reason: str | None
    since: datetime
    held: bool


def try_acquire(connection: Connection, role: str) -> bool:
    """Take the role for as long as this session lives; False when another session has it."""
    row = connection.execute(sql("catalog", "lock_role"), {"role": role}).fetchone()
    return bool(row and row[0])


def report(connection: Connection, role: str, server: str, pid: int, state: State, reason: str | None = None) -> None:
    """Say how the role is. Only its holder may call this."""
    connection.execute(
        sql("catalog", "report_role"), {"role": role, "server": server, "pid": pid, "state": state, "reason": reason}
    )


def states(connection: Connection) -> dict[str, RoleState]:
    """Every role that was ever held, by name."""
    with connection.cursor(row_factory=class_row(RoleState)) as cursor:
        return {row.role: row for row in cursor.execute(sql("catalog", "role_states")).fetchall()}
