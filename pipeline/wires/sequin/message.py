"""Writes items as messages for Sequin's clients: JSON of their values and of Sequin's metadata."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from uuid import UUID, uuid5

from orjson import dumps

from pipeline.wires.sequin.items import DeliveredItem, ReceivedItem


class SequinMessages:
    """Writes the messages of one consumer.

    `databases`: names of sources' databases by id. `hostname`: of the source.
    """

    def __init__(self, consumer: str, databases: dict[UUID, str], hostname: str) -> None:
        self._consumer = consumer
        self._databases = databases
        self._hostname = hostname
        self._ends: dict[UUID, str] = {}

    def text(self, delivery: DeliveredItem) -> str:
        """Return the JSON of a message."""
        item, source_id, cast = delivery
        changes = "null"
        if item.action == "update":
            changes = cast.row(item.changes) if item.changes else "{}"
        pks = dumps(cast.record_pks(item.record_pk, item.record)).decode()
        return (
            f'{{"ack_id":"{item.ack_id}","data":{{"record":{cast.row(item.record, item.exact)},"changes":{changes},'
            f'"action":"{item.action}","metadata":{{"table_schema":{_quoted(item.source_table_schema)},'
            f'"table_name":{_quoted(item.source_table_name)},"commit_timestamp":"{item.committed_at}",'
            f'"commit_lsn":{_number(item.commit_lsn)},"commit_idx":{_number(item.commit_idx)},'
            f'"transaction_annotations":{item.annotations or "null"},'
            f'"idempotency_key":"{idempotency_key(item)}","record_pks":{pks},{self._end(source_id)}}}}}}}'
        )

    def _end(self, source_id: UUID) -> str:
        """Return the end of a message, which is the same for all messages of a source."""
        if source_id not in self._ends:
            database = self._databases.get(source_id, "")
            consumer = {"id": str(consumer_id(source_id, self._consumer)), "name": self._consumer, "annotations": {}}
            whole = {
                "database_name": database,
                "enrichment": None,
                "consumer": consumer,
                "database": {
                    "id": str(source_id),
                    "name": database,
                    "annotations": {},
                    "database": database,
                    "hostname": self._hostname,
                },
            }
            self._ends[source_id] = dumps(whole).decode()[1:-1]
        return self._ends[source_id]


def consumer_id(source_id: UUID, name: str) -> UUID:
    """Return the id of a consumer, which is the same at any time and on any server."""
    return uuid5(source_id, name)


def idempotency_key(item: ReceivedItem) -> str:
    """Return the key of a change, which is the same for each of its deliveries.

    An update that changes the primary key of a row is delivered as a delete, too, which has another key.
    """
    key = f"{item.commit_lsn}:{item.commit_idx}" if item.commit_lsn is not None else f"seq:{item.seq}"
    if item.action != item.event_action:
        key += f":{item.action}"
    return b64encode(key.encode()).decode()


@cache
def _quoted(name: str) -> str:
    return dumps(name).decode()


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)
