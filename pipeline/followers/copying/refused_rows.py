"""What lets a follower take a row that one of its constraints refuses: a check, or a not null."""

from __future__ import annotations

import psycopg

from pipeline.errors import Refused
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier


def remedy(error: BaseException, follower: Connection) -> str | None:
    """Say what to run at the follower, by the error or by its cause; None if it is another error.

    Nothing may be open in that session.
    """
    if isinstance(error, Refused) and error.place != "follower":
        return None
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(cause, psycopg.errors.CheckViolation | psycopg.errors.NotNullViolation):
        return None
    diag = cause.diag
    if diag.datatype_name:
        how = f"drop constraint {identifier(diag.constraint_name)}" if diag.constraint_name else "drop not null"
        texts = [f"alter domain {identifier(diag.schema_name or '', diag.datatype_name)} {how}"]
    else:
        values = {
            "schema": diag.schema_name,
            "table": diag.table_name,
            "constraint": diag.constraint_name,
            "column": diag.column_name,
        }
        found = follower.execute(statement("followers.copying", "refusing_constraints"), values).fetchall()
        texts = [text for (text,) in found]
    return f"let it take that row: run there `{'; '.join(texts)}`" if texts else None
