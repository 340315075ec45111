"""Events written one by one, in the order of the log: for tables whose triggers see them, or without a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.followers.applying import sets
from pipeline.followers.applying.elements import REFUSALS, send
from pipeline.followers.applying.outcomes import Ordered, require_whole
from pipeline.followers.applying.table_statements import TableStatements
from pipeline.followers.applying.truncates import Empty
from pipeline.postgres.connections import Connection


def write(
    follower: Connection, of_table: Callable[[int], TableStatements], events: Sequence[Ordered], empty: Empty
) -> None:
    """Write them, in the transaction that is open. `of_table`: statements by oid. Raises Differs."""
    for event in events:
        statements = of_table(event.table)
        if event.operation == "truncate":
            empty(follower, [statements.table.target], [statements.table.identifier])
            continue
        require_whole(statements.table, event)
        seq = _write(follower, statements, event)
        if seq is not None:
            raise sets.missing(statements, seq)


def _write(follower: Connection, statements: TableStatements, event: Ordered) -> int | None:
    queries = {
        "insert": lambda: statements.insert,
        "upsert": lambda: statements.upsert,
        "delete": lambda: statements.delete,
        "move": lambda: statements.update_with_key,
        "update": lambda: statements.update if statements.table.key else statements.update_with_key,
    }
    try:
        return send(follower, queries[event.operation](), [event.element or ""])
    except REFUSALS as error:
        raise sets.present(statements, event.seq) from error
