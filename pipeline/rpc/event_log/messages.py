"""Events as messages: whole transactions, large ones in parts, of which only the last is `complete`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from pipeline.log.shapes import Columns
from pipeline.rpc.protos import event_log_pb2 as pb

PART_BYTES = 900_000
"""A message is complete before it holds more characters of events than this; a single event may be larger."""
PART_EVENTS = 10_000
_OVERHEAD = 100
"""What an event takes beside its columns of jsonb, about."""
_ACTIONS = {name.lower(): number for name, number in pb.Action.items()}


class Grouping:
    """Makes messages of events as they are read. The last part is held until it is known to be the last."""

    def __init__(self) -> None:
        self._part: list[Columns] = []
        self._size = 0

    @property
    def has_pending(self) -> bool:
        """Whether some of the added events are in no message yet."""
        return bool(self._part)

    def has_pending_upto(self, seq: int) -> bool:
        """Whether one of them is not after this seq."""
        return bool(self._part) and self._part[0].seq <= seq

    def add(self, events: Sequence[Columns], *, whole: bool) -> Iterator[pb.Transaction]:
        """The messages that these events complete. `whole`: no transaction continues after them."""
        for event in events:
            size = event.size + _OVERHEAD
            if self._part and event.transaction != self._part[-1].transaction:
                yield self._take(complete=True)
            elif self._part and (self._size + size > PART_BYTES or len(self._part) >= PART_EVENTS):
                yield self._take(complete=False)
            self._part.append(event)
            self._size += size
        if whole and self._part:
            yield self._take(complete=True)

    def _take(self, *, complete: bool) -> pb.Transaction:
        part, self._part, self._size = self._part, [], 0
        last = part[-1]
        seconds, micros = divmod(last.committed_at, 1_000_000)
        return pb.Transaction(
            position=pb.Position(source_epoch=last.epoch, commit_lsn=last.commit_lsn or 0, seq=last.seq),
            xid=last.xid or 0,
            committed_at=Timestamp(seconds=seconds, nanos=micros * 1000),
            complete=complete,
            changes=[_change(event) for event in part],
        )


def _change(event: Columns) -> pb.Change:
    return pb.Change(
        seq=event.seq,
        commit_idx=event.commit_idx or 0,
        schema=event.schema,
        table=event.name,
        action=pb.Action.Name(_ACTIONS.get(event.action, 0)),
        record_pk=event.record_pk,
        record=event.record,
        changes=event.changes,
        exact=event.exact,
        unchanged_columns=event.unchanged_columns,
        annotations=event.annotations,
        metadata=event.metadata,
    )
