"""The stream as tagged rows: positions, counts, and the fast path beside the plain one."""

from __future__ import annotations

import struct

import pytest

from pipeline.capture.replication import batch_builder
from pipeline.capture.replication.tagger import ChangeTagger
from pipeline.capture.schema_history.staged_relation import StagedRelation
from pipeline.capture.schema_history.versions import HistoryVersion, PublishedColumn
from pipeline.errors import DecodeError
from pipeline.wal import pgoutput
from pipeline.wal.messages import (
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    Message,
    RelationMessage,
    TruncateMessage,
    UpdateMessage,
)

OID = 16385
OWN = 16999
FORM = HistoryVersion(
    OID, "public", "t", OID, "public", "t", "d",
    (PublishedColumn("id", 23, -1, "integer", 23, True), PublishedColumn("v", 25, -1, "text", 25, False)), ("id",),
)  # fmt: skip


def tagger() -> ChangeTagger:
    made = ChangeTagger()
    made.learn(RelationMessage(OID, "public", "t", "d", ()), StagedRelation(5, FORM))
    return made


def fields(row: bytes) -> list[bytes | None]:
    """The columns of a row in COPY's binary format."""
    found: list[bytes | None] = []
    at = 2
    for _ in range(struct.unpack_from(">h", row)[0]):
        (size,) = struct.unpack_from(">i", row, at)
        at += 4
        found.append(None if size < 0 else row[at : at + size])
        at += max(size, 0)
    assert at == len(row)
    return found


def number(field: bytes | None) -> int:
    return int.from_bytes(field or b"", "big", signed=True)


def test_every_change_counts_once_from_zero_in_each_transaction() -> None:
    made = tagger()
    for lsn in (100, 200):
        made.feed(BeginMessage(lsn, 7, 42))
        made.feed(InsertMessage(OID, [b"1", b"a"]))
        made.feed(LogicalMessage(True, 0, "pipeline:annotations", b"{}"))
        made.feed(UpdateMessage(OID, None, False, [b"1", b"b"]))
        made.feed(TruncateMessage((OID, OID), False, False))
        made.feed(DeleteMessage(OID, [b"1", None], False))
        made.feed(CommitMessage(lsn, lsn + 50, 7))
    batch = made.batch.take_batch()
    assert batch is not None
    assert [number(fields(row)[2]) for row in batch.rows] == list(range(10))
    assert batch.first_ordinal == 0
    tags = [(number(f[0]), number(f[1]), f[6]) for f in map(fields, batch.rows)]
    one = [(0, b"insert"), (2, b"update"), (3, b"truncate"), (4, b"truncate"), (5, b"delete")]
    assert tags == [(lsn, idx, action) for lsn in (100, 200) for idx, action in one]
    assert (batch.position, batch.commit_lsn, batch.transactions) == (250, 200, 2)
    assert (batch.first_lsn, batch.last_lsn, batch.open_lsn) == (100, 200, None)
    assert made.batch.take_batch() is None


def test_errors_name_lsns_as_postgres_prints_them() -> None:
    made = tagger()
    made.feed(BeginMessage(0x100, 7, 42))
    with pytest.raises(DecodeError, match=r"^Begin 2/AB inside of transaction 0/100"):
        made.feed(BeginMessage(0x2_0000_00AB, 7, 43))
    with pytest.raises(DecodeError, match=r"^Commit 0/200 does not match its Begin"):
        made.feed(CommitMessage(0x200, 0x210, 7))


def test_an_open_transaction_moves_no_position() -> None:
    made = tagger()
    made.feed(BeginMessage(100, 7, 42))
    made.feed(InsertMessage(OID, [b"1", b"a"]))
    batch = made.batch.take_batch()
    assert batch is not None
    assert (batch.position, batch.commit_lsn, batch.open_lsn, batch.open_changes) == (None, None, 100, 1)
    assert made.batch.in_transaction
    assert not made.batch.has_whole


def test_the_end_of_what_was_taken_in_part_is_no_idle_batch() -> None:
    made = tagger()
    made.feed(BeginMessage(100, 0, 7))
    made.feed(InsertMessage(OID, [b"1", b"a"]))
    first = made.batch.take_batch()
    assert first is not None and (first.open_lsn, first.is_idle, first.ends_staged) == (100, False, False)
    made.feed(CommitMessage(100, 110, 5))
    made.feed(BeginMessage(120, 0, 8))
    end = made.batch.take_batch()
    assert end is not None and (end.rows, end.commit_lsn, end.position) == ([], 100, 110)
    assert (end.is_idle, end.ends_staged, end.open_lsn) == (False, True, 120)
    made.feed(CommitMessage(120, 130, 6))
    empty = made.batch.take_batch()
    assert empty is not None and (empty.rows, empty.position, empty.is_idle) == ([], 130, True)


def test_annotations_hold_until_cleared_or_committed() -> None:
    made = tagger()
    made.feed(BeginMessage(100, 7, 42))
    made.feed(LogicalMessage(True, 0, "pipeline:annotations", b'{"by": 1}'))
    made.feed(InsertMessage(OID, [b"1", b"a"]))
    made.feed(LogicalMessage(True, 0, "sequin:transaction_annotations.clear", b""))
    made.feed(InsertMessage(OID, [b"2", b"a"]))
    made.feed(LogicalMessage(True, 0, "sequin:transaction_annotations.set", b"[2]"))
    made.feed(CommitMessage(100, 150, 7))
    made.feed(BeginMessage(200, 7, 43))
    made.feed(InsertMessage(OID, [b"3", b"a"]))
    made.feed(CommitMessage(200, 250, 7))
    batch = made.batch.take_batch()
    assert batch is not None
    assert [fields(row)[12] for row in batch.rows] == [b'{"by": 1}', None, None]


@pytest.mark.parametrize(
    "hidden",
    [
        [LogicalMessage(True, 0, "pipeline:annotations", b"no JSON")],
        [
            LogicalMessage(True, 0, "pipeline:annotations", b"{}"),
            LogicalMessage(True, 0, "sequin:transaction_annotations.clear", b""),
        ],
        [TruncateMessage((OWN,), False, False)],
    ],
    ids=["no JSON", "cleared at once", "a table of the server"],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "after a row"])
def test_a_row_after_changes_without_a_row_is_marked(hidden: list[Message], first: bool) -> None:
    made = tagger()
    made.ignore(OWN)
    made.feed(BeginMessage(100, 7, 42))
    for message in [*([] if first else [InsertMessage(OID, [b"1", b"a"])]), *hidden]:
        made.feed(message)
    made.take_back([], 0)  # as before each logical message
    made.feed(InsertMessage(OID, [b"2", b"a"]))
    made.feed(InsertMessage(OID, [b"3", b"a"]))
    made.feed(CommitMessage(100, 150, 7))
    batch = made.batch.take_batch()
    assert batch is not None
    assert [fields(row)[12] for row in batch.rows] == [*([] if first else [None]), b"null", None]


def test_messages_outside_of_transactions_are_not_in_the_log() -> None:
    made = tagger()
    made.feed(LogicalMessage(False, 0, "x", b"now"))
    assert made.batch.take_batch() is None


@pytest.mark.parametrize("number", [0, 1])
def test_begin_and_commit_from_bytes(number: int) -> None:
    messages: list[Message] = [BeginMessage(100, 7, 42), CommitMessage(100, 150, 7)]
    wires = [b"B" + struct.pack(">QqI", 100, 7, 42), b"C\0" + struct.pack(">QQq", 100, 150, 7)]
    plain, fast = tagger(), tagger()
    for message, data in zip(messages, wires, strict=True):
        plain.feed(message)
        fast.feed_bytes(data, 0)
    assert fast.batch.take_batch() == plain.batch.take_batch()
    for end in range(1, len(wires[number])):
        with pytest.raises(DecodeError):
            tagger().feed_bytes(wires[number][:end], 0)
    with pytest.raises(DecodeError):
        tagger().feed_bytes(wires[number] + b"\0", 0)


def wire(kind: bytes, *values: bytes | None) -> bytes:
    columns = [b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value for value in values]
    return kind + struct.pack(">I", OID) + b"N" + struct.pack(">H", len(values)) + b"".join(columns)


@pytest.mark.parametrize("kind", [b"I", b"U"])
@pytest.mark.parametrize("values", [(b"1", b"x"), (b"-5", None), (b"7", b"y" * 70_000), (b"8", 'é"\n'.encode())])
def test_one_pass_gives_what_two_give(kind: bytes, values: tuple[bytes | None, ...]) -> None:
    rows = []
    for fast in (True, False):
        made = tagger()
        made.feed(BeginMessage(100, 7, 42))
        data = wire(kind, *values)
        made.feed_bytes(data, 0) if fast else made.feed(pgoutput.decode(data))
        batch = made.batch.take_batch()
        assert batch is not None
        rows.append(batch.rows)
    assert rows[0] == rows[1]


@pytest.mark.parametrize("data", [wire(b"I", b"1", b"x"), wire(b"I", b"1", None)])
def test_a_torn_row_is_refused(data: bytes) -> None:
    made = tagger()
    made.feed(BeginMessage(100, 7, 42))
    for end in range(1, len(data)):
        with pytest.raises(DecodeError):
            made.feed_bytes(data[:end], 0)
    with pytest.raises(DecodeError):
        made.feed_bytes(data + b"\0", 0)
    assert made.batch.take_batch() is None


def test_what_cannot_follow_is_refused() -> None:
    made = tagger()
    with pytest.raises(DecodeError, match="outside"):
        made.feed(InsertMessage(OID, [b"1", b"a"]))
    made.feed(BeginMessage(100, 7, 42))
    with pytest.raises(DecodeError, match="inside"):
        made.feed(BeginMessage(200, 7, 42))
    with pytest.raises(DecodeError, match="not described"):
        made.feed(InsertMessage(1, [b"1"]))
    with pytest.raises(DecodeError, match="columns"):
        made.feed(InsertMessage(OID, [b"1"]))
    with pytest.raises(DecodeError, match="does not match"):
        made.feed(CommitMessage(200, 250, 7))


def test_a_row_that_is_too_long_keeps_its_place_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a smaller limit: COPY's own is 1 GB."""
    monkeypatch.setattr(batch_builder, "LONGEST", 1_000)
    made = tagger()
    made.feed(BeginMessage(100, 7, 42))
    for key in (b"1", b"2", b"3"):
        made.feed(InsertMessage(OID, [key, b"\x01" * (500 if key == b"2" else 5)]))
    made.feed(CommitMessage(100, 150, 7))
    batch = made.batch.take_batch()
    assert batch is not None
    found = [fields(row) for row in batch.rows]
    assert [(number(f[1]), f[6], f[7]) for f in found] == [(n, b"insert", b"%d" % (n + 1)) for n in range(3)]
    assert found[1][8] is not None and b"bytes as JSON, of which" in found[1][8] and found[1][9:] == [None] * 6
    assert (found[0][8] or b"").startswith(b"{") and (found[2][8] or b"").startswith(b"{")
