"""Make events of staged rows, with the queries that this needs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from struct import Struct

from pipeline.log.writing import event_rows
from pipeline.postgres.pipelined_copy import OpenCopy
from pipeline.postgres.queries import literals, statement

_TEXT = 25
"""The oid of the type text."""
_array, _length = Struct(">iiIii").pack, Struct(">i").pack


class EventMaker:
    """Makes the events of one source in one epoch, and remembers the tables that it has seen."""

    def __init__(self, source: uuid.UUID) -> None:
        self._source = source
        self._tables: dict[int, bytes] = {}

    async def events(self, staged: Sequence[bytes], seq: int, session: OpenCopy) -> list[bytes]:
        """Return events with seqs from `seq` up, for the rows before the first one that only the shuffler can write."""
        if not await self._know(staged, session):
            return []
        return event_rows.events(staged, self._tables, seq, await self._exact(staged, session))

    async def _know(self, staged: Sequence[bytes], session: OpenCopy) -> bool:
        """Return True if the tables of all these rows are known, after reading those that are missing."""
        missing = event_rows.relations_of(staged) - self._tables.keys()
        if not missing:
            return True
        found = await session.execute(statement("log.writing", "name_versions") % literals(ids=sorted(missing)))
        for relation, epoch, oid, schema, name in ([value or b"" for value in row] for row in found):
            fields = event_rows.table_fields(self._source.bytes, int(epoch), int(oid), schema.decode(), name.decode())
            self._tables[int(relation)] = fields
        return missing <= self._tables.keys()

    async def _exact(self, staged: Sequence[bytes], session: OpenCopy) -> dict[int, bytes | None]:
        """Return the source texts that events keep, by place: those that jsonb does not return unchanged."""
        if not (texts := event_rows.exact_texts(staged)):
            return {}
        arrays = [_texts(each) for each in zip(*texts.values(), strict=True)]
        kept = await session.ask(statement("log.writing", "exact_texts"), arrays)
        return dict(zip(texts, [exact for (exact,) in kept], strict=True))


def _texts(texts: Sequence[bytes]) -> bytes:
    """Return an array of texts in Postgres's binary form."""
    values = [part for text in texts for part in (_length(len(text)), text)]
    return b"".join((_array(1, 0, _TEXT, len(texts), 1), *values))
