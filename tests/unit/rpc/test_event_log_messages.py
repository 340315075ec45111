"""Messages of EventLog: every event in one, in order, and `complete` only where a transaction ends."""

from __future__ import annotations

from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.log.shapes import EventColumns
from pipeline.rpc.event_log.service import PART_BYTES, TransactionGrouping
from pipeline.rpc.protos import event_log_pb2 as pb


def event(seq: int, transaction: int, padding: int = 0) -> EventColumns:
    rest = (f"{transaction}", 0, transaction, seq, transaction, 1_700_000_000_123_456, str(seq), "x" * padding)
    return EventColumns(padding, seq, "public", "t", "insert", *rest, None, None, None, None, None, 16384)


@given(st.lists(st.integers(1, 12), max_size=12), st.sets(st.integers(0, 144)))
def test_transactions_are_whole_however_they_are_read(sizes: list[int], cuts: set[int]) -> None:
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    bounds = sorted({0, len(owners), *(cut for cut in cuts if cut < len(owners))})
    grouping, sent = TransactionGrouping(), list[pb.Transaction]()
    for start, end in pairwise(bounds):
        whole = end == len(owners) or owners[end - 1] != owners[end]
        sent += grouping.add([event(seq + 1, owners[seq]) for seq in range(start, end)], is_complete=whole)
    assert [[change.seq for change in each.changes] for each in sent] == [
        [seq + 1 for seq, _ in rows] for _, rows in groupby(enumerate(owners), lambda row: row[1])
    ]
    assert all(each.complete and each.position.seq == each.changes[-1].seq for each in sent)
    assert not grouping.has_pending


def test_a_large_transaction_comes_in_parts() -> None:
    events = [event(seq, 1, PART_BYTES // 3) for seq in range(1, 8)]
    sent = list(TransactionGrouping().add(events, is_complete=True))
    assert [[change.seq for change in each.changes] for each in sent] == [[1, 2], [3, 4], [5, 6], [7]]
    assert [each.complete for each in sent] == [False, False, False, True]


def test_one_large_event_is_a_message() -> None:
    sent = list(TransactionGrouping().add([event(1, 1, 3 * PART_BYTES), event(2, 2)], is_complete=True))
    assert [len(each.changes) for each in sent] == [1, 1]
    assert (sent[0].committed_at.seconds, sent[0].committed_at.nanos) == (1_700_000_000, 123_456_000)
