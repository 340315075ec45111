"""Finds the ends of transactions in the log, with few reads of the index on seq, even in a large log."""

from __future__ import annotations

from typing import Any

from adbc_driver_postgresql import dbapi

from pyspark_sequin_events.catalog import rows
from pyspark_sequin_events.query import bounded, qualified

_PLACE = "seq, source_database_id::text as source, source_epoch, commit_lsn"


class TransactionEnds:
    """The ends of transactions in one events table, among events after one seq up to another, which is an end."""

    def __init__(self, connection: dbapi.Connection, events_table: str, after: int, upto: int) -> None:
        self._connection = connection
        self._table = qualified(events_table)
        self._after, self._upto = after, upto

    def end_within(self, events: int) -> int:
        """Return the last end with at most `events` events before it, or the first end if its transaction has more.

        Without any events, return `upto`.
        """
        last = self._nth(events)
        if last is None:
            return self._upto
        following = self._one(f"{bounded(last['seq'], self._upto)} order by seq limit 1")
        if following is None:
            return self._upto
        if not _is_same_transaction(last, following):
            return int(last["seq"])
        return self.end_before(last["seq"]) or self._end_of(last)

    def end_before(self, seq: int) -> int | None:
        """Return the end before the transaction of the event with this seq; None if that transaction is the first."""
        inside = self._at(seq)
        low, high = self._after, seq
        while inside is not None and high - low > 1:
            found = self._at((low + high) // 2)
            if found is not None and _is_same_transaction(found, inside):
                high = int(found["seq"])
            else:
                low = (low + high) // 2
        found = self._at(low)
        return None if found is None else int(found["seq"])

    def _end_of(self, inside: dict[str, Any]) -> int:
        low, high = int(inside["seq"]), self._upto + 1
        while high - low > 1:
            middle = (low + high) // 2
            found = self._at(middle)
            if found is not None and _is_same_transaction(found, inside):
                low = middle
            else:
                high = int(found["seq"]) if found else middle
        found = self._at(low)
        return self._upto if found is None or low >= self._upto else int(found["seq"])

    def _nth(self, number: int) -> dict[str, Any] | None:
        """Return the event with this number, found by an index-only scan; None if there are fewer events."""
        found = rows(
            self._connection,
            f"select seq from {self._table} where {bounded(self._after, self._upto)}"
            f" order by seq offset {int(number) - 1} limit 1",
        )
        return self._at(found[0]["seq"]) if found else None

    def _at(self, seq: int) -> dict[str, Any] | None:
        """Return the last event up to this seq."""
        return self._one(f"{bounded(self._after, seq)} order by seq desc limit 1")

    def _one(self, condition: str) -> dict[str, Any] | None:
        found = rows(self._connection, f"select {_PLACE} from {self._table} where {condition}")
        return found[0] if found else None


def _is_same_transaction(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if two neighbours are of one transaction. Without an LSN, in a legacy table, each event is one."""
    if one["commit_lsn"] is None:
        return bool(one["seq"] == other["seq"])
    return all(one[name] == other[name] for name in ("source", "source_epoch", "commit_lsn"))
