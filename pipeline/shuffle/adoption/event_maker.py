"""Makes events of staged rows, and asks for what it needs to know in between."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from psycopg import sql

from pipeline.postgres.queries import statement
from pipeline.shuffle import event_rows
from pipeline.shuffle.event_rows import NotPlain
from pipeline.staging.open_copy import Answer

Ask = Callable[[str], Awaitable[Answer]]


class EventMaker:
    """For one source; it knows the tables that it has seen."""

    def __init__(self, source: uuid.UUID) -> None:
        self._source = source
        self._tables: dict[int, bytes] = {}

    async def events(self, staged: Sequence[bytes], seq: int, ask: Ask) -> list[bytes]:
        """Rows that get these seqs, from `seq` up. Raises NotPlain."""
        await self._know(staged, ask)
        return event_rows.events(staged, self._tables, seq, await self._exact(staged, ask))

    async def _know(self, staged: Sequence[bytes], ask: Ask) -> None:
        missing = event_rows.relations_of(staged) - self._tables.keys()
        if not missing:
            return
        found = await ask(_literal("shuffle.adoption", "name_versions", ids=sorted(missing)))
        for relation, epoch, oid, schema, name in ([value or b"" for value in row] for row in found):
            fields = event_rows.table_fields(self._source.bytes, int(epoch), int(oid), schema.decode(), name.decode())
            self._tables[int(relation)] = fields
        if missing - self._tables.keys():
            raise NotPlain

    async def _exact(self, staged: Sequence[bytes], ask: Ask) -> dict[int, bytes | None]:
        """What the events keep of source texts: those that jsonb does not give back as they were."""
        if not (texts := event_rows.exact_texts(staged)):
            return {}
        records, exacts = ([text.decode() for text in each] for each in zip(*texts.values(), strict=True))
        found = await ask(_literal("shuffle", "exact_texts", places=list(texts), records=records, exacts=exacts))
        return {int(place or b""): kept for place, kept in found}


def _literal(package: str, name: str, **values: Any) -> str:
    return statement(package, name) % {each: sql.Literal(value).as_string() for each, value in values.items()}
