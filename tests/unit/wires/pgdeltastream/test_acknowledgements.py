"""An acknowledgement stands for the end of a frame that was sent, or for nothing."""

from __future__ import annotations

import pytest

from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions import acknowledgements
from pipeline.wires.pgdeltastream.sessions.acknowledgements import FrameAcknowledgements

START = 0x1_0000_0010


@pytest.fixture
def made() -> FrameAcknowledgements:
    """Three frames were sent."""
    made = FrameAcknowledgements(START)
    for end in (0x100, 0x200, 0x300):
        made.expect(START + end)
    made.sent_to = START + 0x300
    return made


def test_it_stands_for_the_last_end_at_or_below_it(made: FrameAcknowledgements) -> None:
    assert made.acknowledge(lsn.show(START + 0x100)) == START + 0x100
    assert made.acknowledge(lsn.show(START + 0x2FF)) == START + 0x200
    assert made.pending
    assert made.acknowledge(lsn.show(START + 0x300).lower()) == START + 0x300
    assert not made.pending


def test_backward_moves_nothing(made: FrameAcknowledgements) -> None:
    assert made.acknowledge(lsn.show(START + 0x200)) == START + 0x200
    for offset in (0, 0x100, 0x200, 0x201):
        assert made.acknowledge(lsn.show(START + offset)) is None


def test_beyond_what_was_sent_moves_nothing(made: FrameAcknowledgements) -> None:
    assert made.acknowledge(lsn.show(START + 0x301)) is None
    assert made.acknowledge("FFFFFFFF/FFFFFFFF") is None
    assert made.acknowledge(lsn.show(START + 0x300)) == START + 0x300


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "/",
        "1",
        "0/",
        "/0",
        "0x1/0",
        "1/1/1",
        " 1/0",
        "1/0\n",
        "1/-1",
        "\uff11/0",
        "0/" + "1" * 20,
        "1" * 20,
        "1/1_0",
    ],
)
def test_garbage_moves_nothing(made: FrameAcknowledgements, garbage: str) -> None:
    assert made.acknowledge(garbage) is None


def test_who_never_acknowledges_costs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "REMEMBERED_ENDS", 64)
    made = FrameAcknowledgements(0)
    for end in range(10, 100_000, 10):
        made.expect(end)
        assert len(made._ends) <= 64
    made.sent_to = 100_000
    found = made.acknowledge(lsn.show(50_005))
    assert found is not None and found <= 50_000
    assert made.acknowledge(lsn.show(99_990)) == 99_990
    assert not made.pending
