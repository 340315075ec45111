"""Events made of staged rows without looking into their values."""

from __future__ import annotations

import pytest

from pipeline.log.staging import rows
from pipeline.log.staging.rows import Rest
from pipeline.log.writing import event_rows

TABLES = {7: event_rows.table_fields(b"s" * 16, 1, 16_384, "public", "orders"), 300: b"others"}
CHANGES: Rest = (b'{"a": 1}', None, None, None, None, None)
EXACT: Rest = (None, b'{"a": "1.0"}', None, None, None, None)


def staged(
    action: bytes = b"insert", key: bytes = b"1", record: bytes = b"{}", rest: Rest | None = None, relation: int = 7
) -> bytes:
    change = rows.change_head(relation, 9, 1_000, action)
    return rows.row(rows.transaction_head(500), 3, 4, change, key, record, rest)


def fields(event: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    at = 2
    while at < len(event) and len(found) < 10:
        length = int.from_bytes(event[at : at + 4], signed=True)
        found.append(None if length < 0 else event[at + 4 : at + 4 + length])
        at += 4 + max(0, length)
    return [*found, event[at:]]


@pytest.mark.parametrize("action", sorted(event_rows.ACTIONS))
@pytest.mark.parametrize("key", [b"", b"1", b"\xff" * 24, b"k" * 300], ids=["empty", "one", "bytes", "long"])
@pytest.mark.parametrize("record", [b"{}", '{"a": "\u00ff"}'.encode(), b"r" * 100_000], ids=["empty", "text", "long"])
@pytest.mark.parametrize("rest", [None, CHANGES, EXACT], ids=["plain", "changes", "exact"])
def test_an_event_has_what_its_row_has(action: bytes, key: bytes, record: bytes, rest: Rest | None):
    made = event_rows.events([staged(action, key, record, rest, 300)], TABLES, 77, {0: b"{}"} if rest is EXACT else {})
    assert [int.from_bytes(made[0][:2]), *fields(made[0])] == [
        15,
        (77).to_bytes(8),
        (500).to_bytes(8),
        (3).to_bytes(4),
        (9).to_bytes(8),
        (1_000).to_bytes(8),
        action,
        key,
        b"\x01" + record,
        b"\x01" + CHANGES[0] if rest is CHANGES and CHANGES[0] else None,
        b"\x01{}" if rest is EXACT else None,
        b"others",
    ]


def test_rows_of_several_tables_and_kinds_in_turn():
    given = [staged(), staged(relation=300), staged(b"delete"), staged(rest=CHANGES), staged(key=b"22")]
    alone = [event_rows.events([each], TABLES, 10 + place, {})[0] for place, each in enumerate(given)]
    assert event_rows.events(given, TABLES, 10, {}) == alone
    assert event_rows.relations_of(given) == {7, 300}
    assert [fields(each)[-1] for each in alone] == [TABLES[7], b"others", *[TABLES[7]] * 3]


@pytest.mark.parametrize("rest", [(None, None, b"[]", None, None, None), (None, None, None, None, b"1", b"{}")])
def test_events_end_before_what_the_shuffler_has_to_fill_in(rest: Rest):
    given = [staged(), staged(b"delete"), staged(rest=rest), staged()]
    assert event_rows.events(given, TABLES, 1, {}) == event_rows.events(given[:2], TABLES, 1, {})


@pytest.mark.parametrize("action", [b"message", b"truncate", b"read"])
def test_events_end_before_other_actions(action: bytes):
    given = [staged(), staged(action), staged()]
    assert event_rows.events(given, TABLES, 1, {}) == event_rows.events(given[:1], TABLES, 1, {})


def test_events_with_other_seqs():
    given = [staged(), staged(relation=300), staged(rest=CHANGES)]
    assert event_rows.numbered(event_rows.events(given, TABLES, 0, {}), 77) == event_rows.events(given, TABLES, 77, {})


def test_a_row_without_a_key_and_texts_are_found():
    without = rows.without_values(staged(key=b"k" * 1_000_001))
    assert fields(event_rows.events([without], TABLES, 1, {})[0])[6] is None
    assert event_rows.exact_texts([staged(), staged(rest=EXACT), without]) == {1: (b"{}", EXACT[1])}


@pytest.mark.parametrize("rest", [None, CHANGES, EXACT], ids=["plain", "changes", "exact"])
def test_its_columns_are_what_a_copy_of_it_reads(rest: Rest | None):
    (event,) = event_rows.events([staged(rest=rest)], TABLES, 77, {0: b"{}"} if rest is EXACT else {})
    columns = event_rows.fields(event)
    assert len(columns) == len(event_rows.COLUMNS)
    lengths = [b"\xff" * 4 if each is None else len(each).to_bytes(4, "big") for each in columns]
    assert event[2:] == b"".join(length + (each or b"") for length, each in zip(lengths, columns, strict=True))
