"""Promises broken on purpose, to see how soon the model notices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from pipeline.consumers.queue import items, queue_apply


@dataclass(frozen=True)
class Mutation:
    """This text of an SQL function or view, or of the shuffler's statement when none is named, becomes that.

    `every`: of its statement for consumers that do not collapse.
    """

    old: str
    new: str
    function: str = ""
    every: bool = False


MUTATIONS = {
    "ack_id never rotates": Mutation(
        "encode(beginning || int4send(p.number::integer), 'hex')::uuid",
        "md5(r.source_table_oid || r.record_pk || r.consumer_id || r.unkeyed)::uuid",
        "hand_out",
    ),
    "delete wins bluntly": Mutation("i.unkeyed, i.seq desc\n)", "i.unkeyed, i.action = 'delete' desc, i.seq desc\n)"),
    "receivers of a group at once": Mutation("perform pg_advisory_xact_lock(714629015, me.id);", "", "receive"),
    "a touch while out is forgotten": Mutation(
        "then 'pending_redelivery' else 'available' end", "then r.state else 'available' end"
    ),
    "what a client holds is not merged": Mutation(
        "where k.is_queued and not k.is_locked\n    on conflict", "where false\n    on conflict"
    ),
    "a truncate waits for nothing": Mutation("((action <> 'truncate'::text) OR (NOT", "(true OR (NOT", "receivable"),
    "two of a row at once": Mutation(
        "case when p.is_first then 'available' else 'blocked' end", "'available'", every=True
    ),
    "what is behind stays there": Mutation(
        "r.state = 'blocked'\n        and (r.unkeyed < 0", "false\n        and (r.unkeyed < 0", "move_up"
    ),
    "who may be in front is not looked at again": Mutation("where not p.is_sure", "where false", every=True),
    "a paused consumer misses what comes": Mutation(
        "where e.seq > %(after)s",
        "where (select c.state = 'active' from pipeline.consumers c where c.id = %(consumer)s) and e.seq > %(after)s",
        every=True,
    ),
}


@contextmanager
def mutated(dsn: str, name: str | None) -> Iterator[None]:
    """With that promise broken inside of the block; None breaks none. Functions stay as they are then."""
    if name is None:
        yield
        return
    mutation = MUTATIONS[name]
    if mutation.function:
        _mutate_function(dsn, mutation)
        yield
        return
    module, query = (queue_apply, "_compose_add") if mutation.every else (items, "_compose_apply")
    original = getattr(module, query)

    def broken(*of: Any) -> bytes:
        return _replaced(original(*of).decode(), mutation).encode()

    setattr(module, query, broken)
    try:
        yield
    finally:
        setattr(module, query, original)


def _mutate_function(dsn: str, mutation: Mutation) -> None:
    name = f"pipeline.{mutation.function}"
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select case when to_regclass(%(name)s) is null then pg_get_functiondef(to_regproc(%(name)s))"
            " else 'create or replace view ' || %(name)s || ' as ' || pg_get_viewdef(to_regclass(%(name)s)) end",
            {"name": name},
        ).fetchone()
        assert found is not None
        connection.execute(_replaced(found[0], mutation).encode())


def _replaced(text: str, mutation: Mutation) -> str:
    assert text.count(mutation.old) == 1, f"this text is there {text.count(mutation.old)} times: {mutation.old}"
    return text.replace(mutation.old, mutation.new)
