"""What a command prints about lost data before you agree."""

from __future__ import annotations

from dataclasses import replace

from pipeline.cli.render import losses
from pipeline.operate.repair.gap import HistoryGap

GAP = HistoryGap("shop", ["slot is gone"], 0, 1000, None)


def test_a_gap_without_reread_names_the_option() -> None:
    assert any("with --reread," in line for line in losses.gap(GAP))
    assert not any("with --reread," in line for line in losses.gap(GAP, reread=True))
    assert not any("--reread" in line for line in losses.gap(replace(GAP, upgraded=True)))
