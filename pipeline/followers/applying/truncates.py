"""Truncates at the follower."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from pipeline.postgres.connections import Connection

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
        for table in tables:
            follower.execute(sql.SQL("delete from {}").format(table))
