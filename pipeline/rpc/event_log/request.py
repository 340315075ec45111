"""What a ReadRequest asks for, checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pipeline.config import patterns
from pipeline.errors import TableRefused, WrongArgument
from pipeline.log.page import Filter
from pipeline.rpc.protos import event_log_pb2 as pb

ACTIONS = tuple(name.lower() for name in pb.Action.keys()[1:])
MAX_SEQ = (1 << 63) - 1


@dataclass(frozen=True)
class Wanted:
    """What a call reads. `consumer`: from its position, with its filter. `after`: None means all that is kept."""

    table: str
    follow: bool
    consumer: str | None
    after: int | None
    filter: Filter


def wanted(request: pb.ReadRequest, default: str, tables: Collection[str]) -> Wanted:
    """`default`: the default events table; `tables`: all that are configured. Raises WrongArgument, TableRefused."""
    start = request.WhichOneof("from")
    consumer = request.consumer if start == "consumer" else None
    if consumer is not None:
        for name in ("tables", "actions", "events_table"):
            if getattr(request, name):
                raise WrongArgument(f"a consumer has its own filter and events table: leave out {name}")
    after = request.after.seq if start == "after" else None
    if after is not None and not 0 <= after <= MAX_SEQ:
        raise WrongArgument(f"after.seq must be 0 or more, not {after}")
    return Wanted(
        _events_table(request.events_table, default, tables),
        request.follow,
        consumer,
        after,
        Filter(actions=_actions(request.actions), within=_tables(request.tables)),
    )


def _events_table(name: str, default: str, tables: Collection[str]) -> str:
    if name in tables:
        return name
    if name:
        raise TableRefused(f"there is no events table {name[:200]!r} in the settings; there are: {', '.join(tables)}")
    return default


def _tables(given: Collection[str]) -> tuple[str, ...]:
    try:
        patterns.require_qualified(given)
        patterns.require_few(given)
    except ValueError as error:
        raise WrongArgument(str(error)) from None
    if any("\0" in pattern for pattern in given):
        raise WrongArgument("a text may not hold a zero byte")
    return tuple(given)


def _actions(given: Collection[str]) -> tuple[str, ...]:
    for action in given:
        if action not in ACTIONS:
            raise WrongArgument(f"there is no action {action[:100]!r}; there are: {', '.join(ACTIONS)}")
    return tuple(given)
