"""What an acknowledgement sets: no position beyond what was sent, and none inside of a transaction."""

from __future__ import annotations

import pytest

from pipeline.consumers.cursor import acknowledged_position
from pipeline.consumers.cursor.acknowledged_position import AcknowledgementTracker
from pipeline.errors import WrongArgumentError


def test_an_acknowledgement_inside_a_transaction_settles_earlier_ones() -> None:
    ends = AcknowledgementTracker(0, by_transaction=True)
    for seq in range(1, 12):
        ends.record_sent(seq, ends=seq in (3, 7, 11))
    assert [ends.acknowledge(seq) for seq in (2, 3, 6, 7, 7, 10, 11)] == [None, 3, None, 7, None, None, 11]


def test_an_acknowledgement_of_what_was_not_sent_is_refused() -> None:
    ends = AcknowledgementTracker(5, by_transaction=False)
    assert ends.acknowledge(5) == 5
    with pytest.raises(WrongArgumentError, match="6 is beyond the last event that was sent, 5"):
        ends.acknowledge(6)


def test_of_many_unacknowledged_ends_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged_position, "REMEMBERED_ENDS", 10)
    ends = AcknowledgementTracker(0, by_transaction=True)
    for seq in range(1, 30):
        ends.record_sent(seq, ends=True)
    assert ends.acknowledge(10) is None
    assert ends.acknowledge(29) == 29
