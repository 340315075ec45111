"""Computes the position that an acknowledgement of a cursor's client sets. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from pipeline.errors import WrongArgumentError

REMEMBERED_ENDS = 131_072
"""The most ends of unacknowledged transactions that are kept, to find acknowledgements inside a transaction."""


class AcknowledgementTracker:
    """Computes the position of each acknowledgement: never beyond the last sent event, and never inside a transaction
    if the client gets whole transactions.
    """

    def __init__(self, position: int, *, by_transaction: bool) -> None:
        """`position`: the seq after which the client begins. `by_transaction`: the client gets whole transactions."""
        self.last_sent = position
        self._unacknowledged: array[int] | None = array("q") if by_transaction else None

    def record_sent(self, seq: int, *, ends: bool) -> None:
        """Record that the events up to `seq` are about to be sent. `ends`: a transaction ends with this seq."""
        self.last_sent = seq
        if self._unacknowledged is not None and ends:
            self._unacknowledged.append(seq)
            if len(self._unacknowledged) > REMEMBERED_ENDS:
                del self._unacknowledged[: REMEMBERED_ENDS // 2]

    def acknowledge(self, seq: int) -> int | None:
        """Return the position that this acknowledgement sets; None if it moves nothing.

        Raises WrongArgumentError if `seq` is beyond the last sent event.
        """
        if seq > self.last_sent:
            raise WrongArgumentError(f"{seq} is beyond the last event that was sent, {self.last_sent}")
        if self._unacknowledged is None:
            return seq
        settled = bisect_right(self._unacknowledged, seq)
        if not settled:
            return None
        position = self._unacknowledged[settled - 1]
        del self._unacknowledged[:settled]
        return position
