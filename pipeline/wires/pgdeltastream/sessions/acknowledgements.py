"""Turns a client's acknowledgement into a position: the end of a frame that was sent. Does no IO."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

from pipeline.wal import lsn

REMEMBERED_ENDS = 1 << 20
"""How many ends of unacknowledged frames are remembered, 8 bytes each."""

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class FrameAcknowledgements:
    """The ends of frames that are sent and not acknowledged.

    If there are more than REMEMBERED_ENDS, every second end of the older half is forgotten. An acknowledgement of a
    forgotten end counts for the end before it, so a client that reconnects may get some frames again.
    """

    def __init__(self, position: int) -> None:
        """`position`: everything before it is acknowledged."""
        self.sent_to = position
        """The end of the last whole frame that was sent: an acknowledgement beyond it is ignored."""
        self._ends = array("q")

    @property
    def pending(self) -> bool:
        """True if a frame is not acknowledged."""
        return bool(self._ends)

    def expect(self, end: int) -> None:
        """Add the end of a transaction, which is the end of its last frame."""
        self._ends.append(end)
        if len(self._ends) > REMEMBERED_ENDS:
            del self._ends[1 : REMEMBERED_ENDS // 2 : 2]

    def acknowledge(self, text: str) -> int | None:
        """Return the position up to which everything is acknowledged now; None if the text moves nothing.

        It moves nothing if it is no LSN, goes back, or is beyond the last frame that was sent.
        """
        if not _LSN.fullmatch(text) or (acknowledged := lsn.parse(text)) > self.sent_to:
            return None
        settled = bisect_right(self._ends, acknowledged)
        if not settled:
            return None
        position = self._ends[settled - 1]
        del self._ends[:settled]
        return position
