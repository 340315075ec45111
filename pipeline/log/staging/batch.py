"""Batches cut at the end of their last whole transaction. Pure."""

from __future__ import annotations

from dataclasses import replace

from pipeline.log.staging.rows import committed_at_of, lsn_of
from pipeline.log.writing.staged import Batch

_LSN = slice(6, 14)
"""Where a row has its commit_lsn."""


def split(batch: Batch) -> list[Batch]:
    """A part with whole transactions, which may end one that an earlier batch began; then the beginning of another."""
    if batch.open_lsn is None or not batch.rows or batch.last_lsn != batch.open_lsn:
        return [replace(batch, open_lsn=None, open_changes=0)]
    if batch.position is None:
        return [batch]
    place = len(batch.rows)
    while place and lsn_of(batch.rows[place - 1]) == batch.open_lsn:
        place -= 1
    last = lsn_of(batch.rows[place - 1]) if place else batch.first_lsn
    whole = replace(batch, rows=batch.rows[:place], last_lsn=last, open_lsn=None, open_changes=0)
    begun = replace(
        batch,
        rows=batch.rows[place:],
        first_lsn=batch.open_lsn,
        first_ordinal=batch.first_ordinal + place,
        transactions=0,
        position=None,
        commit_lsn=None,
        committed_at=None,
    )
    return [whole, begun] if place or batch.ends_staged else [begun]


def before(batch: Batch, place: int) -> tuple[Batch, Batch] | None:
    """A part with the whole transactions before the one of this row, and the rest; None where there are none."""
    lsn = lsn_of(batch.rows[place])
    while place and lsn_of(batch.rows[place - 1]) == lsn:
        place -= 1
    if not place:
        return None
    staged = batch.rows[:place]
    transactions = len({row[_LSN] for row in staged})
    whole = replace(
        batch,
        rows=staged,
        last_lsn=lsn_of(staged[-1]),
        transactions=transactions,
        position=lsn,  # a position may be anywhere between two transactions
        commit_lsn=lsn_of(staged[-1]),
        committed_at=committed_at_of(staged[-1]),
        open_lsn=None,
        open_changes=0,
    )
    rest = replace(
        batch,
        rows=batch.rows[place:],
        first_lsn=lsn,
        first_ordinal=batch.first_ordinal + place,
        transactions=max(0, batch.transactions - transactions),
        ends_staged=False,
    )
    return whole, rest
