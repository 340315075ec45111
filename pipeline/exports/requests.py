"""Requests to export at once: made over HTTP, kept in the pipeline database, answered by the schedule role."""

from __future__ import annotations

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

_ADD = """\
with old as (delete from pipeline.export_requests where requested_at < clock_timestamp() - interval '1 hour')
insert into pipeline.export_requests default values returning id
"""
"""Add a request, and forget those of an hour ago."""
_OPEN = """\
select exists (select from pipeline.export_requests
    where answered_at is null and requested_at > clock_timestamp() - interval '1 minute')
"""
"""True if a request waits for its answer. One of more than a minute ago is dropped."""
_ANSWER = """\
update pipeline.export_requests set answered_at = clock_timestamp(), refusal = %(refusal)s
where answered_at is null and requested_at > clock_timestamp() - interval '1 minute'
"""
"""Answer the requests that wait."""
_ANSWER_OF = "select answered_at is not null, refusal from pipeline.export_requests where id = %(id)s"


def add(connection: Connection) -> int | None:
    """Add a request and return its id; None if another one waits for its answer already."""
    with connection.transaction():
        connection.execute("lock table pipeline.export_requests in share row exclusive mode")
        if queries.value(connection, _OPEN):
            return None
        return int(queries.value(connection, _ADD))


def answer(connection: Connection, refusal: str | None) -> bool:
    """Answer the requests that wait; return True if there are any. `refusal`: why none begins; None: one begins now."""
    return connection.execute(_ANSWER, {"refusal": refusal}).rowcount > 0


def find_answer(connection: Connection, request: int) -> tuple[bool, str | None]:
    """Return whether a request is answered, and why it was refused; None if it was not."""
    row = connection.execute(_ANSWER_OF, {"id": request}).fetchone()
    return (bool(row[0]), row[1]) if row else (False, None)
