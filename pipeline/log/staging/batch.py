"""A batch of staged rows, and functions that cut it between transactions. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.log.staging.rows import committed_at_of, lsn_of

_LSN = slice(6, 14)
"""The bytes of a staged row that hold its commit_lsn."""


@dataclass(frozen=True)
class ChangeBatch:
    """Rows to stage: complete transactions, then perhaps the beginning of one more.

    Their `ordinal`s count up from `first_ordinal`; those of this worker's next batch continue from there.

    `position`, `commit_lsn` and `committed_at` (µs since 2000) belong to the last complete transaction, and are None
    if there is none. `open_lsn` and `open_changes` belong to the incomplete one. `ends_staged`: the batch completes a
    transaction without a row of it: an earlier batch has its rows, or rows that were read from a table get its place
    in the log (`places_range`).
    """

    rows: list[bytes]
    first_lsn: int
    last_lsn: int
    first_ordinal: int
    transactions: int
    position: int | None
    commit_lsn: int | None
    committed_at: int | None
    open_lsn: int | None
    open_changes: int
    ends_staged: bool = False
    places_range: bool = False

    @property
    def is_idle(self) -> bool:
        """True if the batch stages nothing and only moves the position, as WAL without changes for the log does."""
        return not self.rows and not self.ends_staged


def split(batch: ChangeBatch) -> list[ChangeBatch]:
    """Split a batch into its whole transactions, and the beginning of the transaction that it leaves incomplete.

    The whole transactions may end one that an earlier batch began.
    """
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


def before(batch: ChangeBatch, place: int) -> tuple[ChangeBatch, ChangeBatch] | None:
    """Split a batch before the transaction of the row at `place`; None if no whole transaction comes before it."""
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
