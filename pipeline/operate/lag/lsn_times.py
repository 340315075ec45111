"""Estimate when the source wrote an LSN, from the stored samples. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_UNSTORED = timedelta(seconds=6)
"""The greatest age of WAL that is in no stored sample, while a sampler runs."""
_UNSEEN = timedelta(seconds=2)
"""The greatest age of WAL that no sample has seen, while a sampler runs."""


@dataclass(frozen=True)
class NearestSamples:
    """The samples next to the LSN `asked`: `below` was the end of WAL at `below_at`, and `above` at `above_at`."""

    asked: int
    below: int | None = None
    below_at: datetime | None = None
    above: int | None = None
    above_at: datetime | None = None


def written_at(around: NearestSamples | None, end: int, now: datetime, *, sampled: bool) -> datetime | None:
    """The time at which the WAL after the LSN was written; None if unknown. `end`: the end of WAL at `now`.

    For an LSN before the oldest sample: the time of that sample, although the WAL may have been written at any time
    before that.
    """
    if around is None or (around.below is None and around.above is None):
        return None
    if around.below is None or around.below_at is None:
        return around.above_at
    above, above_at, below_at = around.above, around.above_at, around.below_at
    if above is None or above_at is None:
        above, above_at = max(end, around.below), now
        if sampled and now - below_at > _UNSTORED:
            below_at = now - _UNSEEN
    share = (around.asked - around.below) / (above - around.below) if above > around.below else 0.0
    return below_at + (above_at - below_at) * share
