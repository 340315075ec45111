"""Makes and parses the frames of a cursor's stream. Pure: text in, text out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from pipeline.close_codes import POLICY
from pipeline.log.entry import JsonEvent

MAX_EVENTS = 500
"""The most events in one frame."""
FRAME_BYTES = 1_000_000
"""The number of characters of events with which a frame is complete; a single event may be larger."""
Mode = Literal["events", "transactions"]


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream, which its client chooses. `max_events`: the most events in a frame."""

    mode: Mode = "events"
    max_events: int = MAX_EVENTS

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StreamOptions:
        """Parse the query of the URL. Raises BadFrameError."""
        if unknown := set(given) - {"mode", "max"}:
            raise BadFrameError(POLICY, f"unknown parameter {min(unknown)!r}; use mode or max")
        mode, max_events = given.get("mode", "events"), given.get("max", str(MAX_EVENTS))
        if mode not in get_args(Mode):
            raise BadFrameError(POLICY, f"mode must be events or transactions, not {mode!r}")
        if not re.fullmatch("[0-9]{1,9}", max_events) or not 1 <= int(max_events) <= MAX_EVENTS:
            raise BadFrameError(POLICY, f"max must be a number of events from 1 to {MAX_EVENTS}, not {max_events!r}")
        return cls(cast(Mode, mode), int(max_events))


class BadFrameError(Exception):
    """An invalid frame of a client, or invalid options. `code`: the close code; the text is for the client."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class ServerFrame:
    """A frame of events for a client. `seq`: the seq of its last event; `ends`: a transaction ends with that event."""

    text: str
    seq: int
    ends: bool


def parse_acknowledgement(text: str) -> int:
    """Return the seq in a client's `{"ack": seq}`. Raises BadFrameError for any other text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrameError(POLICY, 'expected a JSON object such as {"ack": 42}; this is not JSON') from None
    if not isinstance(parsed, dict) or set(parsed) != {"ack"}:
        raise BadFrameError(POLICY, 'expected {"ack": seq} and nothing else')
    seq = parsed["ack"]
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq < 1 << 63:
        raise BadFrameError(POLICY, '"ack" must be the seq of an event: a number from 0 to 9223372036854775807')
    return seq


def ready_frame(position: int) -> str:
    """Return the first frame, which says that events after `position` follow."""
    return f'{{"type":"ready","position":{position}}}'


def acknowledged_frame(position: int) -> str:
    """Return the frame that says that the position is stored: events up to it are not sent again."""
    return f'{{"type":"acknowledged","position":{position}}}'


def error_frame(sentence: str) -> str:
    """Return the last frame before the server closes the stream."""
    return json.dumps({"type": "error", "title": sentence}, ensure_ascii=False, separators=(",", ":"))


def close_reason(sentence: str) -> str:
    """Return the part of a sentence that fits into a close frame."""
    return sentence.encode()[:123].decode(errors="ignore")


class EventFrames:
    """Makes frames of mode `events`: each event is sent at once, without waiting for the rest of its transaction."""

    has_pending = False

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events

    def add(self, entries: Sequence[JsonEvent], *, is_complete: bool) -> Iterator[ServerFrame]:
        """Yield the frames of these events."""
        for part in _split_entries(entries, self._max_events):
            text = ",".join([entry.event for entry in part])
            yield ServerFrame(f'{{"type":"events","data":[{text}]}}', part[-1].seq, ends=True)


class TransactionFrames:
    """Makes frames of mode `transactions`. The last events are held until it is known whether more of their transaction
    follow.
    """

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self._part: list[JsonEvent] = []
        self._size = 0

    @property
    def has_pending(self) -> bool:
        """True if some of the added events are in no frame yet."""
        return bool(self._part)

    def add(self, entries: Sequence[JsonEvent], *, is_complete: bool) -> Iterator[ServerFrame]:
        """Yield the frames that these events complete. `is_complete`: no transaction continues after them."""
        for entry in entries:
            if self._part and entry.transaction != self._part[-1].transaction:
                yield self._make_frame(complete=True)
            elif len(self._part) >= self._max_events or self._size >= FRAME_BYTES:
                yield self._make_frame(complete=False)
            self._part.append(entry)
            self._size += len(entry.event)
        if is_complete and self._part:
            yield self._make_frame(complete=True)

    def _make_frame(self, *, complete: bool) -> ServerFrame:
        part, self._part, self._size = self._part, [], 0
        head = json.dumps(
            {"type": "transaction", "commit_lsn": part[0].commit_lsn, "xid": part[0].xid, "complete": complete},
            separators=(",", ":"),
        )
        text = ",".join([entry.event for entry in part])
        return ServerFrame(f'{head[:-1]},"data":[{text}]}}', part[-1].seq, ends=complete)


def _split_entries(entries: Sequence[JsonEvent], max_events: int) -> Iterator[Sequence[JsonEvent]]:
    """Yield parts of at most `max_events` events; the event with which a part reaches FRAME_BYTES is its last."""
    start = size = 0
    for end, entry in enumerate(entries, 1):
        size += len(entry.event)
        if end - start >= max_events or size >= FRAME_BYTES:
            yield entries[start:end]
            start, size = end, 0
    if start < len(entries):
        yield entries[start:]
