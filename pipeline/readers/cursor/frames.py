"""The frames of a cursor's stream, in both directions. Pure: text in, text out."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

MAX_EVENTS = 500
"""Events in one frame, at most."""
FRAME_BYTES = 1_000_000
"""A frame is closed once it holds so many characters of events; one event may be larger."""
MAX_CLIENT_FRAME = 65_536
"""Bytes of a client's message."""
REMEMBERED_ENDS = 131_072
"""So many ends of unacknowledged transactions are kept, to tell which acknowledgement is inside of one."""

NOT_SUPPORTED, NOT_TEXT, POLICY, SERVER_ERROR, RESTART = 1003, 1007, 1008, 1011, 1012
UNKNOWN, HELD, EXPIRED = 4404, 4409, 4410
"""Close codes: RFC 6455's, and ours: no such consumer, another reader has it, its position is no longer in the log."""

Mode = Literal["events", "transactions"]


@dataclass(frozen=True)
class Options:
    """What a client asks of a stream. `most`: events in a frame."""

    mode: Mode = "events"
    most: int = MAX_EVENTS

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """From the query of the URL. Raises BadFrame."""
        if unknown := set(given) - {"mode", "max"}:
            raise BadFrame(POLICY, f"unknown parameter {min(unknown)!r}; there are mode and max")
        mode, most = given.get("mode", "events"), given.get("max", str(MAX_EVENTS))
        if mode not in get_args(Mode):
            raise BadFrame(POLICY, f"mode is events or transactions, not {mode!r}")
        if not re.fullmatch("[0-9]{1,9}", most) or not 1 <= int(most) <= MAX_EVENTS:
            raise BadFrame(POLICY, f"max is a number of events from 1 to {MAX_EVENTS}, not {most!r}")
        return cls(cast(Mode, mode), int(most))


class BadFrame(Exception):
    """A client's frame that says nothing we know. Carries the close code; the text is for the client."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, `event` its JSON as Postgres prints it; neighbours of one `transaction` belong together."""

    seq: int
    table: str
    action: str
    transaction: str
    commit_lsn: int | None
    xid: int | None
    event: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A server's frame of events, ready to send. `seq`: its last event; `ends`: that is the end of a transaction."""

    text: str
    seq: int
    ends: bool


def acknowledged_seq(text: str) -> int:
    """The seq of a client's `{"ack": seq}`. Raises BadFrame for everything else."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame(POLICY, 'expected a JSON object such as {"ack": 42}; this is no JSON') from None
    if not isinstance(said, dict) or set(said) != {"ack"}:
        raise BadFrame(POLICY, 'expected {"ack": seq} and nothing else')
    seq = said["ack"]
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq < 1 << 63:
        raise BadFrame(POLICY, '"ack" is the seq of an event: a number from 0 to 9223372036854775807')
    return seq


def ready(position: int) -> str:
    """The first frame: events after `position` follow."""
    return f'{{"type":"ready","position":{position}}}'


def acknowledged(position: int) -> str:
    """The position is stored: what is up to there does not come again."""
    return f'{{"type":"acknowledged","position":{position}}}'


def error(sentence: str) -> str:
    """The frame before the server closes."""
    return json.dumps({"type": "error", "title": sentence}, ensure_ascii=False, separators=(",", ":"))


def close_reason(sentence: str) -> str:
    """As much of a sentence as fits into a close frame."""
    return sentence.encode()[:123].decode(errors="ignore")


class EventFrames:
    """Frames of mode `events`: what is there, without waiting for more."""

    keeps = False

    def __init__(self, most: int) -> None:
        self._most = most

    def add(self, entries: Sequence[Entry], *, whole: bool) -> Iterator[Frame]:
        """The frames of these events."""
        for part in _parts(entries, self._most):
            text = ",".join([entry.event for entry in part])
            yield Frame(f'{{"type":"events","data":[{text}]}}', part[-1].seq, ends=True)


class TransactionFrames:
    """Frames of mode `transactions`. The last part of one is kept back until it is known to be the last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._part: list[Entry] = []
        self._size = 0

    @property
    def keeps(self) -> bool:
        """Whether events were added that are in no frame yet."""
        return bool(self._part)

    def add(self, entries: Sequence[Entry], *, whole: bool) -> Iterator[Frame]:
        """The frames that these events complete. `whole`: no transaction goes on after them."""
        for entry in entries:
            if self._part and entry.transaction != self._part[-1].transaction:
                yield self._take(complete=True)
            elif len(self._part) >= self._most or self._size >= FRAME_BYTES:
                yield self._take(complete=False)
            self._part.append(entry)
            self._size += len(entry.event)
        if whole and self._part:
            yield self._take(complete=True)

    def _take(self, *, complete: bool) -> Frame:
        part, self._part, self._size = self._part, [], 0
        head = json.dumps(
            {"type": "transaction", "commit_lsn": part[0].commit_lsn, "xid": part[0].xid, "complete": complete},
            separators=(",", ":"),
        )
        text = ",".join([entry.event for entry in part])
        return Frame(f'{head[:-1]},"data":[{text}]}}', part[-1].seq, ends=complete)


class Ends:
    """What acknowledgements of a stream mean: none goes beyond what was sent, none ends inside of a transaction."""

    def __init__(self, position: int, mode: Mode) -> None:
        self._sent = position
        self._unacknowledged: array[int] | None = array("q") if mode == "transactions" else None

    def sent(self, frame: Frame) -> None:
        """Remember a frame that is about to leave."""
        self._sent = frame.seq
        if self._unacknowledged is not None and frame.ends:
            self._unacknowledged.append(frame.seq)
            if len(self._unacknowledged) > REMEMBERED_ENDS:
                del self._unacknowledged[: REMEMBERED_ENDS // 2]

    def position(self, seq: int) -> int | None:
        """Where an acknowledgement moves the position; None: nowhere. Raises BadFrame beyond what was sent."""
        if seq > self._sent:
            raise BadFrame(POLICY, f'"ack": {seq} is beyond the last event that was sent, {self._sent}')
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


def _parts(entries: Sequence[Entry], most: int) -> Iterator[Sequence[Entry]]:
    """At most so many, and closed once they hold FRAME_BYTES."""
    start = size = 0
    for end, entry in enumerate(entries, 1):
        size += len(entry.event)
        if end - start >= most or size >= FRAME_BYTES:
            yield entries[start:end]
            start, size = end, 0
    if start < len(entries):
        yield entries[start:]
