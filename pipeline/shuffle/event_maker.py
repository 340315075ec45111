"""Makes events of staged rows, and asks for what it needs to know in between."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence

from pipeline.postgres.queries import literals, statement
from pipeline.shuffle import event_rows
from pipeline.staging.open_copy import Answer

Ask = Callable[[str], Awaitable[Answer]]


class EventMaker:
    """For one source, in one epoch of it; it knows the tables that it has seen."""

    def __init__(self, source: uuid.UUID) -> None:
        self._source = source
        self._tables: dict[int, bytes] = {}

    async def events(self, staged: Sequence[bytes], seq: int, ask: Ask) -> list[bytes]:
        """Rows that get these seqs, from `seq` up: of all before the first that only the shuffler can write."""
        if not await self._know(staged, ask):
            return []
        return event_rows.events(staged, self._tables, seq, await self._exact(staged, ask))

    async def _know(self, staged: Sequence[bytes], ask: Ask) -> bool:
        """Whether the tables of all these rows are known."""
        missing = event_rows.relations_of(staged) - self._tables.keys()
        if not missing:
            return True
        found = await ask(statement("shuffle", "name_versions") % literals(ids=sorted(missing)))
        for relation, epoch, oid, schema, name in ([value or b"" for value in row] for row in found):
            fields = event_rows.table_fields(self._source.bytes, int(epoch), int(oid), schema.decode(), name.decode())
            self._tables[int(relation)] = fields
        return missing <= self._tables.keys()

    async def _exact(self, staged: Sequence[bytes], ask: Ask) -> dict[int, bytes | None]:
        """What the events keep of source texts: those that jsonb does not give back as they were."""
        if not (texts := event_rows.exact_texts(staged)):
            return {}
        records, exacts = ([text.decode() for text in each] for each in zip(*texts.values(), strict=True))
        values = literals(places=list(texts), records=records, exacts=exacts)
        return {int(place or b""): kept for place, kept in await ask(statement("shuffle", "exact_texts") % values)}
