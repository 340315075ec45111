"""The shapes in which a feed reads events: finished JSON, which it sends unchanged, or columns, which it stores."""

from __future__ import annotations

from typing import NamedTuple

from psycopg import sql

from pipeline.log.entry import JsonEvent
from pipeline.log.page import DEFAULT_LOG, EventPageReader, EventShape

_TRANSACTION = """coalesce(concat(e.source_database_id, ' ', e.source_epoch, ' ', nullif(e.commit_lsn::text, '')), '')
            || case when e.commit_lsn is null then e.seq::text else '' end as transaction"""
"""An expression that is equal for adjacent events of one transaction."""


class EventColumns(NamedTuple):
    """One event by its columns; jsonb as the text that Postgres prints. `committed_at`: microseconds since 1970, UTC.

    Adjacent events of one `transaction` belong together. `size`: the bytes of its long columns.
    """

    size: int
    seq: int
    schema: str
    name: str
    action: str
    transaction: str
    epoch: int
    commit_lsn: int | None
    commit_idx: int | None
    xid: int | None
    committed_at: int
    record_pk: str
    record: str
    changes: str | None
    exact: str | None
    unchanged_columns: list[str] | None
    annotations: str | None
    metadata: str | None
    table_oid: int

    @property
    def source(self) -> str:
        """The id of the source database."""
        return self.transaction.partition(" ")[0]

    @property
    def table(self) -> str:
        """`schema.table`."""
        return f"{self.schema}.{self.name}"


_JSON: EventShape[JsonEvent] = EventShape(
    columns=f"""e.seq, e.source_table_schema || '.' || e.source_table_name as table_name, e.action,
        {_TRANSACTION}, e.commit_lsn, e.xid, row_to_json(e)::text as event""",
    size="octet_length(event)",
    make=JsonEvent,
)
_COLUMNS: EventShape[EventColumns] = EventShape(
    columns=f"""e.seq, e.source_table_schema, e.source_table_name, e.action, {_TRANSACTION},
        e.source_epoch, e.commit_lsn, e.commit_idx, e.xid,
        (extract(epoch from e.committed_at) * 1000000)::bigint as committed_at, e.record_pk,
        e.record::text as record, e.changes::text as changes, e.exact::text as exact, e.unchanged_columns,
        e.transaction_annotations::text as annotations, e.metadata::text as metadata, e.source_table_oid""",
    size="octet_length(concat(record_pk, record, changes, exact, annotations, metadata))",
    make=EventColumns,
    sized=True,
)
JSON = EventPageReader(DEFAULT_LOG, _JSON)
"""The default events table as JSON."""


def json_of(events: sql.Identifier) -> EventPageReader[JsonEvent]:
    """Return a reader of an events table as JSON."""
    return EventPageReader(events, _JSON)


def columns_of(events: sql.Identifier) -> EventPageReader[EventColumns]:
    """Return a reader of an events table by its columns."""
    return EventPageReader(events, _COLUMNS)
