"""Makes events of staged rows, and asks for what it needs to know in between."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from struct import Struct

from pipeline.log.writing import event_rows
from pipeline.postgres.pipelined_copy import OpenCopy
from pipeline.postgres.queries import literals, statement

_TEXT = 25
"""The oid of that type."""
_array, _length = Struct(">iiIii").pack, Struct(">i").pack


class EventMaker:
    """For one source, in one epoch of it; it knows the tables that it has seen."""

    def __init__(self, source: uuid.UUID) -> None:
        self._source = source
        self._tables: dict[int, bytes] = {}

    async def events(self, staged: Sequence[bytes], seq: int, session: OpenCopy) -> list[bytes]:
        """Rows that get these seqs, from `seq` up: of all before the first that only the shuffler can write."""
        if not await self._know(staged, session):
            return []
        return event_rows.events(staged, self._tables, seq, await self._exact(staged, session))

    async def _know(self, staged: Sequence[bytes], session: OpenCopy) -> bool:
        """Whether the tables of all these rows are known."""
        missing = event_rows.relations_of(staged) - self._tables.keys()
        if not missing:
            return True
        found = await session.execute(statement("log.writing", "name_versions") % literals(ids=sorted(missing)))
        for relation, epoch, oid, schema, name in ([value or b"" for value in row] for row in found):
            fields = event_rows.table_fields(self._source.bytes, int(epoch), int(oid), schema.decode(), name.decode())
            self._tables[int(relation)] = fields
        return missing <= self._tables.keys()

    async def _exact(self, staged: Sequence[bytes], session: OpenCopy) -> dict[int, bytes | None]:
        """What the events keep of source texts: those that jsonb does not give back as they were."""
        if not (texts := event_rows.exact_texts(staged)):
            return {}
        arrays = [_texts(each) for each in zip(*texts.values(), strict=True)]
        kept = await session.ask(statement("log.writing", "exact_texts"), arrays)
        return dict(zip(texts, [exact for (exact,) in kept], strict=True))


def _texts(texts: Sequence[bytes]) -> bytes:
    """An array of texts in Postgres's binary form."""
    values = [part for text in texts for part in (_length(len(text)), text)]
    return b"".join((_array(1, 0, _TEXT, len(texts), 1), *values))
