"""Truncates at the follower."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
from psycopg import sql

from pipeline.postgres.connections import Connection

Empty = Callable[[Connection, Sequence[sql.Composable]], None]
_COMMA = sql.SQL(", ")


def run(follower: Connection, tables: Sequence[sql.Composable]) -> None:
    """Empty these tables together, in the transaction that is open, as one statement did at the source.

    A foreign key of a table that is not among them forbids that, also where foreign keys are not checked: then their
    rows are deleted.
    """
    if not tables:
        return
    try:
        with follower.transaction():
            follower.execute(sql.SQL("truncate {}").format(_COMMA.join(tables)))
    except psycopg.errors.FeatureNotSupported:
        delete(follower, tables)


def delete(follower: Connection, tables: Sequence[sql.Composable]) -> None:
    """Empty them so that others read what they had until this transaction commits."""
    for table in tables:
        follower.execute(sql.SQL("delete from {}").format(table))
