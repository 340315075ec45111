"""Messages to Sequin's clients: what is said of a change that has all, and of a legacy event, which has no place."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any
from uuid import UUID, uuid5

from pipeline.wires.sequin.items import DeliveredItem, ReceivedItem
from pipeline.wires.sequin.message import SequinMessages
from pipeline.wires.sequin.row_cast import RowCast

SOURCE = UUID("0b9d2f4e-5a61-4a0f-9a3c-6f1f0b8f2c11")
CAST = RowCast([{"name": "total", "type_name": "numeric"}], ["id"])
ITEM = ReceivedItem(
    ack_id="7ffb1b4e-3b9c-4a52-8f0e-6b7c3c1a9d10",
    seq=5,
    commit_lsn=100,
    commit_idx=3,
    source_table_schema='a "b"',
    source_table_name="ä",
    record_pk="7",
    action="update",
    record='{"id": 7, "total": 1.10}',
    changes='{"total": 1.00}',
    exact=None,
    annotations='{"user": "me"}',
    committed_at="2024-01-01T00:00:00.000000Z",
    event_action="update",
    table_key=f"{SOURCE} 0 1",
    newest_version=1,
)


def read(item: ReceivedItem, cast: RowCast = CAST) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        SequinMessages("orders", {SOURCE: "shop"}, "db").text(DeliveredItem(item, SOURCE, cast))
    )["data"]
    return found


def test_old_values_are_cast_and_annotations_are_as_they_were() -> None:
    found = read(ITEM)
    assert (found["record"]["total"], found["changes"]) == ("1.10", {"total": "1.00"})
    metadata = found["metadata"]
    assert (metadata["table_schema"], metadata["table_name"]) == ('a "b"', "ä")
    assert metadata["transaction_annotations"] == {"user": "me"}
    assert b64decode(metadata["idempotency_key"]) == b"100:3"
    assert metadata["consumer"]["id"] == str(uuid5(SOURCE, "orders"))


def test_a_delete_that_an_update_is_too_has_a_key_of_its_own() -> None:
    found = read(ITEM._replace(action="delete", record='{"id": 6}', changes=None))
    assert found["changes"] is None
    assert b64decode(found["metadata"]["idempotency_key"]) == b"100:3:delete"


def test_a_legacy_event_keeps_its_values_and_is_known_by_its_seq() -> None:
    found = read(ITEM._replace(commit_lsn=None, commit_idx=None, changes=None), RowCast())
    assert (found["record"]["total"], found["changes"]) == (1.1, {})
    assert (found["metadata"]["commit_lsn"], found["metadata"]["commit_idx"]) == (None, None)
    assert b64decode(found["metadata"]["idempotency_key"]) == b"seq:5"
    assert found["metadata"]["record_pks"] == ["7"]
