"""A session's ledger beside a model that keeps every event by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wires.walstream import ledger
from pipeline.wires.walstream.ledger import AcknowledgementLedger

BEGIN = 10


@dataclass
class Model:
    """Each event with its transaction; acknowledged are the first `upto` of them."""

    events: list[tuple[int, int, int]] = field(default_factory=list)  # transaction, lsn, seq
    upto: int = 0
    whole: bool = True

    def acknowledge(self, lsn: int) -> None:
        for at in range(self.upto, len(self.events)):
            if self.events[at][1] == lsn:
                self.upto = at + 1
                return

    @property
    def settled(self) -> int:
        last = BEGIN
        for at in range(self.upto):
            is_last = at + 1 == len(self.events) or self.events[at + 1][0] != self.events[at][0]
            if is_last and (at + 1 < len(self.events) or self.whole):
                last = self.events[at][2]
        return last


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.booleans(), st.integers(0, 2)),
        st.tuples(st.just("whole")),
        st.tuples(st.just("ack"), st.integers(0, 12)),
        st.tuples(st.just("next")),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_settles_what_the_model_does(steps: list[tuple[object, ...]]) -> None:
    tested, model = AcknowledgementLedger(BEGIN), Model()
    transaction, lsn, seq = 0, 1, BEGIN
    for step in steps:
        match step:
            case ("send", bool(begins), int(gap)):
                begins = begins or not model.events or (model.whole and model.events[-1][0] == transaction)
                transaction, lsn = transaction + begins, lsn + gap * begins
                seq += 1
                tested.sent(lsn, seq, begins=begins)
                model.events.append((transaction, lsn, seq))
                model.whole = False
            case ("whole",):
                tested.end_transaction()
                model.whole = True
            case ("ack", int(which)):
                tested.acknowledge(which)
                model.acknowledge(which)
            case _:
                if model.upto < len(model.events):
                    tested.acknowledge(model.events[model.upto][1])
                    model.upto += 1
        assert tested.settled == model.settled
        assert tested.unacknowledged == len(model.events) - model.upto


def test_an_acknowledgement_is_of_the_next_event_with_its_lsn() -> None:
    found = AcknowledgementLedger(0)
    for seq in (1, 2, 3):
        found.sent(500, seq, begins=seq == 1)
    found.sent(600, 4, begins=True)
    found.end_transaction()
    assert [found.acknowledge(500), found.settled] == [True, 0]
    assert [found.acknowledge(600), found.settled, found.owes] == [True, 4, False]
    assert [found.acknowledge(600), found.acknowledge(500), found.acknowledge(2**64 - 1)] == [False] * 3


def test_a_transaction_that_is_still_being_sent_is_not_settled() -> None:
    found = AcknowledgementLedger(0)
    found.sent(500, 1, begins=True)
    found.acknowledge(500)
    assert (found.settled, found.owes) == (0, True)
    found.sent(500, 2, begins=False)
    found.end_transaction()
    assert (found.settled, found.unacknowledged) == (0, 1)
    found.acknowledge(500)
    assert (found.settled, found.owes) == (2, False)


def test_one_that_never_acknowledges_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "REMEMBERED", 100)
    found = AcknowledgementLedger(0)
    for seq in range(1, 1_001):
        found.sent(seq, seq, begins=True)
    found.end_transaction()
    assert len(found._lsns) <= 101
    assert (found.settled, found.unacknowledged, found.owes) == (0, 1_000, True)
    assert not found.acknowledge(1), "forgotten: it comes again"
    assert found.acknowledge(1_000)
    assert (found.settled, found.unacknowledged, found.owes) == (1_000, 0, False)
