"""Which position a client's acknowledgement stands for: the end of a frame that was sent. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

from pipeline.wal import lsn

REMEMBERED_ENDS = 1 << 20
"""How many ends of unacknowledged frames are remembered, 8 bytes each."""

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class Acknowledgements:
    """Remembers where frames end that are not acknowledged.

    Beyond REMEMBERED_ENDS every second of the older half is forgotten: an acknowledgement there stands for an earlier
    end, so that a client which begins again gets some frames once more.
    """

    def __init__(self, position: int) -> None:
        """`position`: everything before it is acknowledged."""
        self.sent_to = position
        """The end of the last whole frame that was sent: an acknowledgement beyond it counts for nothing."""
        self._ends = array("q")

    @property
    def pending(self) -> bool:
        """Whether something is not acknowledged."""
        return bool(self._ends)

    def expect(self, end: int) -> None:
        """There is another frame, with which its transaction ends; one that is a part, not the last, has no end."""
        self._ends.append(end)
        if len(self._ends) > REMEMBERED_ENDS:
            del self._ends[1 : REMEMBERED_ENDS // 2 : 2]

    def acknowledge(self, text: str) -> int | None:
        """The position up to which everything is acknowledged now; None where nothing moves.

        That is so for what is no LSN, goes back, or goes beyond what was sent.
        """
        if not _LSN.fullmatch(text) or (said := lsn.parse(text)) > self.sent_to:
            return None
        settled = bisect_right(self._ends, said)
        if not settled:
            return None
        position = self._ends[settled - 1]
        del self._ends[:settled]
        return position
