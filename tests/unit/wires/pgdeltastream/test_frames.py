"""A frame a transaction, from pgoutput's bytes."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import pytest

from pipeline.errors import DecodeError
from pipeline.wal import lsn, pgoutput
from pipeline.wal.messages import RelationColumn, RelationMessage
from pipeline.wires.pgdeltastream.sessions import frames as frames_module
from pipeline.wires.pgdeltastream.sessions.frames import FrameBuilder

START = 0x1570000


def relation(oid: int = 1, name: str = "t") -> RelationMessage:
    columns = (RelationColumn(True, "id", 23, -1), RelationColumn(False, "name", 25, -1))
    return RelationMessage(oid, "public", name, "d", columns)


def values(*texts: bytes) -> bytes:
    return pack(">H", len(texts)) + b"".join(b"t" + pack(">I", len(text)) + text for text in texts)


def begin(commit: int) -> bytes:
    return b"B" + pack(">QqI", commit, 0, 7)


def commit(at: int, end: int) -> bytes:
    return b"C\0" + pack(">QQq", at, end, 0)


def insert(number: int, text: bytes = b"x", oid: int = 1) -> bytes:
    return b"I" + pack(">I", oid) + b"N" + values(str(number).encode(), text)


def truncate(*oids: int) -> bytes:
    return b"T" + pack(">IB", len(oids), 0) + b"".join(pack(">I", oid) for oid in oids)


class Fed:
    """Frames, and what they say about ends."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, bool]] = []
        self.frames = FrameBuilder(START, ended=lambda end, framed: self.ends.append((end, framed)))
        self.frames.learn(relation(), ["integer", "text"])
        self.frames.learn(relation(2, "other"), ["integer", "text"])

    def transaction(self, at: int, *messages: bytes) -> list[dict[str, Any]]:
        for message in (begin(at), *messages, commit(at, at + 8)):
            self.frames.feed(b"head" + message, 4)
        return [json.loads(frame.text) for frame in self.frames.take_frames()]


@pytest.fixture
def fed() -> Fed:
    return Fed()


def test_a_transaction_is_a_frame(fed: Fed) -> None:
    for message in (begin(START), insert(1), insert(2), commit(START, 0x1573CA8)):
        fed.frames.feed(message, 0)
    (frame,) = fed.frames.take_frames()
    change = (
        b'{"kind":"insert","schema":"public","table":"t","columnnames":["id","name"],"columntypes":["integer","text"]'
    )
    assert frame.text == (
        b'{"nextlsn":"0/1573CA8","change":[%b,"columnvalues":[1,"x"]},%b,"columnvalues":[2,"x"]}]}' % (change, change)
    )
    assert frame.end == 0x1573CA8
    assert fed.frames.take_frames() == []


def test_every_kind_of_change(fed: Fed) -> None:
    old = b"K" + values(b"1", b"") + b"N"
    (frame,) = fed.transaction(
        START,
        insert(1),
        b"U" + pack(">I", 1) + b"N" + values(b"1", b"y"),
        b"U" + pack(">I", 1) + old + values(b"2", b"y"),
        b"D" + pack(">I", 1) + b"K" + values(b"2", b""),
        b"M\1" + pack(">Q", START) + b"prefix\0" + pack(">I", 2) + b"xx",
    )
    assert [change["kind"] for change in frame["change"]] == ["insert", "update", "update", "delete"]
    assert "truncated" not in frame


def test_a_truncated_table_is_named_beside_the_changes(fed: Fed) -> None:
    (frame,) = fed.transaction(START, insert(1), truncate(1, 2))
    assert list(frame) == ["nextlsn", "change", "truncated"]
    assert frame["truncated"] == [{"schema": "public", "table": "t"}, {"schema": "public", "table": "other"}]
    (alone,) = fed.transaction(START + 8, truncate(2))
    assert (alone["change"], len(alone["truncated"])) == ([], 1)


def test_a_transaction_without_anything_published_has_no_frame_but_an_end(fed: Fed) -> None:
    assert fed.transaction(START) == []
    assert fed.transaction(START + 8, b"M\0" + pack(">Q", START) + b"p\0" + pack(">I", 0)) == []
    assert len(fed.transaction(START + 16, insert(1))) == 1
    assert fed.ends == [(START + 8, False), (START + 16, False), (START + 24, True)]


@pytest.mark.parametrize("gathered", [10, 500, 1 << 18])
def test_only_the_last_frame_of_a_long_transaction_has_its_end(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, gathered: int
) -> None:
    monkeypatch.setattr(frames_module, "FRAME_BYTES", 1000)
    monkeypatch.setattr(frames_module, "_GATHERED", gathered)
    for number, (at, before) in enumerate(((START, START), (START + 8, START + 8))):
        found = fed.transaction(at, *(insert(i) for i in range(number, 30)))
        assert len(found) > 3
        assert [frame["nextlsn"] for frame in found] == [lsn.show(before)] * (len(found) - 1) + [lsn.show(at + 8)]
        ids = [change["columnvalues"][0] for frame in found for change in frame["change"]]
        assert ids == list(range(number, 30))
        assert all(frame["change"] and len(json.dumps(frame, separators=(",", ":"))) < 1100 for frame in found)


def test_only_the_last_part_has_an_end(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "FRAME_BYTES", 200)
    for message in (begin(START), insert(1), insert(2), insert(3), commit(START, START + 8)):
        fed.frames.feed(message, 0)
    assert [frame.end for frame in fed.frames.take_frames()] == [None, None, START + 8]


def test_a_truncate_is_in_the_part_where_it_was(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "FRAME_BYTES", 200)
    found = fed.transaction(START, truncate(1), insert(1), insert(2))
    assert [("truncated" in frame, len(frame["change"])) for frame in found] == [(True, 1), (False, 1)]


@pytest.mark.parametrize(
    "messages",
    [
        [insert(1)],
        [commit(START, START + 8)],
        [begin(START), begin(START)],
        [begin(START), insert(1, oid=99)],
        [begin(START), truncate(99)],
        [begin(START), b"I\0\0\0"],
        [begin(START), insert(1)[:-1]],
        [begin(START)[:-1]],
        [b"R" + pack(">I", 1) + b"public\0t\0d\0\0"],
        [b"?"],
    ],
)
def test_what_cannot_be_is_an_error(fed: Fed, messages: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        for message in messages:
            fed.frames.feed(message, 0)


def test_torn_messages_are_errors(fed: Fed) -> None:
    fed.frames.feed(begin(START), 0)
    for cut in range(1, len(insert(1))):
        with pytest.raises(DecodeError):
            fed.frames.feed(insert(1)[:cut], 0)
    assert pgoutput.XLOG_HEADER == 25
