"""Which position an acknowledgement of a cursor's client sets. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from pipeline.errors import WrongArgumentError

REMEMBERED_ENDS = 131_072
"""How many ends of unacknowledged transactions are remembered, to tell which acknowledgement is inside one."""


class AcknowledgementTracker:
    """Never beyond what was sent; of clients that get whole transactions, never inside one."""

    def __init__(self, position: int, *, whole: bool) -> None:
        """`position`: where the client begins. `whole`: it gets whole transactions."""
        self._sent = position
        self._unacknowledged: array[int] | None = array("q") if whole else None

    def sent(self, seq: int, *, ends: bool) -> None:
        """Remember what is about to be sent. `ends`: its transaction ends there."""
        self._sent = seq
        if self._unacknowledged is not None and ends:
            self._unacknowledged.append(seq)
            if len(self._unacknowledged) > REMEMBERED_ENDS:
                del self._unacknowledged[: REMEMBERED_ENDS // 2]

    def position(self, seq: int) -> int | None:
        """The position that this sets; None: it moves nothing. Raises WrongArgumentError beyond what was sent."""
        if seq > self._sent:
            raise WrongArgumentError(f"{seq} is beyond the last event that was sent, {self._sent}")
        if self._unacknowledged is None:
            return seq
        settled = bisect_right(self._unacknowledged, seq)
        if not settled:
            return None
        position = self._unacknowledged[settled - 1]
        del self._unacknowledged[:settled]
        return position

    @property
    def last(self) -> int:
        """The last seq that was sent."""
        return self._sent
