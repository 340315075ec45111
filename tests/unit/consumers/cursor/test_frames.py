"""Frames of the stream: every event in one frame, in order, and no half transaction that looks like a whole one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.consumers.cursor.frames import (
    FRAME_BYTES,
    BadFrameError,
    EventFrames,
    ServerFrame,
    StreamOptions,
    TransactionFrames,
    close_reason,
    error_frame,
    parse_acknowledgement,
)
from pipeline.log.entry import JsonEvent


def entry(seq: int, transaction: int, padding: int = 0) -> JsonEvent:
    text = json.dumps({"seq": seq, "padding": "x" * padding})
    return JsonEvent(seq, "public.t", "insert", str(transaction), transaction, transaction, text)


def batches(sizes: list[int], cuts: set[int]) -> Iterator[tuple[list[JsonEvent], bool]]:
    """Transactions of these sizes, cut into batches anywhere; whole where the cut is between two."""
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    bounds = sorted({0, len(owners), *(cut for cut in cuts if cut < len(owners))})
    for start, end in pairwise(bounds):
        whole = end == len(owners) or owners[end - 1] != owners[end]
        yield [entry(seq + 1, owners[seq]) for seq in range(start, end)], whole


def seqs(frame: ServerFrame) -> list[int]:
    return [event["seq"] for event in json.loads(frame.text)["data"]]


@given(st.lists(st.integers(1, 12), max_size=12), st.sets(st.integers(0, 144)), st.integers(1, 6))
def test_transactions_arrive_whole_and_say_so_only_at_their_end(
    sizes: list[int], cuts: set[int], max_events: int
) -> None:
    frames = TransactionFrames(max_events)
    sent = [frame for entries, whole in batches(sizes, cuts) for frame in frames.add(entries, is_complete=whole)]
    told = [json.loads(frame.text) for frame in sent]
    assert [seq for frame in sent for seq in seqs(frame)] == list(range(1, sum(sizes) + 1))
    assert [frame["complete"] for frame in told] == [
        part == -(-size // max_events) - 1 for size in sizes for part in range(-(-size // max_events))
    ]
    assert all(len(frame["data"]) <= max_events for frame in told)
    assert not frames.has_pending


@given(st.lists(st.integers(1, 12), max_size=12), st.sets(st.integers(0, 144)), st.integers(1, 6))
def test_events_wait_for_nothing(sizes: list[int], cuts: set[int], max_events: int) -> None:
    frames = EventFrames(max_events)
    for entries, whole in batches(sizes, cuts):
        sent = list(frames.add(entries, is_complete=whole))
        assert [seq for frame in sent for seq in seqs(frame)] == [e.seq for e in entries]
        assert all(len(seqs(frame)) <= max_events for frame in sent)


@pytest.mark.parametrize("kind", [EventFrames, TransactionFrames])
def test_a_frame_is_closed_by_the_event_that_fills_it(kind: type[EventFrames | TransactionFrames]) -> None:
    entries = [entry(seq, 1, FRAME_BYTES // 3) for seq in range(1, 8)]
    sent = list(kind(500).add(entries, is_complete=True))
    assert [seqs(frame) for frame in sent] == [[1, 2, 3], [4, 5, 6], [7]]


@pytest.mark.parametrize(
    "text",
    [
        *["", "{", "[]", "7", '{"ack": "7"}', '{"ack": true}', '{"ack": -1}', '{"ack": 1.5}', '{"ack": 1, "x": 2}'],
        *['{"ack": 9223372036854775808}', "[" * 100_000, '{"ack": NaN}', '{"ack": 1e3}', '{"nack": 1}'],
    ],
    ids=lambda text: repr(text[:20]),
)
def test_other_frames_of_clients_are_refused(text: str) -> None:
    with pytest.raises(BadFrameError) as refused:
        parse_acknowledgement(text)
    assert refused.value.code == 1008


@pytest.mark.parametrize(
    "given_options", [{"mode": "x"}, {"max": "0"}, {"max": "501"}, {"max": "²"}, {"max": ""}, {"mod": "events"}]
)
def test_other_options_are_refused(given_options: dict[str, Any]) -> None:
    with pytest.raises(BadFrameError):
        StreamOptions.parse(given_options)


def test_options_have_defaults() -> None:
    assert StreamOptions.parse({}) == StreamOptions("events", 500)
    assert StreamOptions.parse({"mode": "transactions", "max": "7"}) == StreamOptions("transactions", 7)


def test_reasons_fit_into_a_close_frame_and_errors_are_json() -> None:
    assert len(close_reason("ä" * 100).encode()) <= 123
    assert json.loads(error_frame('a "quoted" ä'))["title"] == 'a "quoted" ä'
