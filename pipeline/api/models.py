"""Requests and answers of the REST API, as OpenAPI describes them. JSON names are the column names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from pipeline.api.long_poll import MAX_SECONDS
from pipeline.api.patterns import NAME, NO_ZERO_BYTE, START

MAX_SEQ = 2**53 - 1
"""The largest integer that every JSON parser keeps exactly."""
_MONTH = 2_592_000


def _whole(value: Any) -> Any:
    """Return 10 for 10.0, since JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_text(value: Any) -> Any:
    """Return a seq as text if the client sent it as a number, since this field may also be a word."""
    value = _whole(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SEQ else value


Whole = Annotated[int, BeforeValidator(_whole)]
_SEQ = Annotated[Whole, Field(ge=0, le=MAX_SEQ, strict=True)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_ZERO_BYTE)]
Start = Annotated[
    str,
    BeforeValidator(_as_text),
    StringConstraints(pattern=START),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": START}, {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}]}
    ),
]
Seconds = Annotated[float, Field(ge=0, le=_MONTH, allow_inf_nan=False, strict=True)]
Visibility = Annotated[float, Field(ge=0.001, le=_MONTH, allow_inf_nan=False, strict=True)]
Actions = Literal["insert", "update", "delete", "truncate", "read", "message"]
_VISIBILITY_TEXT = "seconds until an item that is neither acknowledged nor refused is delivered again"
_START_TEXT = "`now`, `beginning`, or a seq after which to begin"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewConsumer(_Body):
    """The settings of a new consumer."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "mailer", "kind": "records", "tables": ["public.orders"]}]}
    )

    name: str = Field(pattern=NAME, description="letters, digits, `_`, `.` and `-`, at most 63; not `.` or `..`")
    kind: Literal["records", "cursor"] = Field(
        default="records", description="records: a queue of changed rows; cursor: a position in the log"
    )
    tables: list[Text] = Field(
        default_factory=list, max_length=1000, description="`schema.table`, where `*` matches anything; empty: all"
    )
    actions: list[Actions] = Field(default_factory=list, max_length=20, description="empty: all actions")
    events_table: Text | None = Field(
        default=None, description="`schema.table` to which a route sends changes; null: the default events table"
    )
    start: Start = Field(default="now", description=_START_TEXT)
    group_by: list[Text] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="records: columns whose values form a group; its items are delivered one at a time; null: the key",
    )
    collapse: bool = Field(
        default=True,
        strict=True,
        description="records: an item is a row with its last change; false: each event is an item, and the items of a"
        " row or group are delivered one at a time, in order; cannot be changed later",
    )
    visibility: Visibility = Field(default=30, description=f"records: {_VISIBILITY_TEXT}")
    max_deliveries: Annotated[Whole, Field(ge=1, le=1_000_000, strict=True)] | None = Field(
        default=None, description="records: deliveries after which an item becomes a dead letter; null: never"
    )
    max_unacknowledged: Annotated[Whole, Field(ge=1, le=1_000_000, strict=True)] | None = Field(
        default=None, description="records: how many items may be delivered and unacknowledged; null: any number"
    )

    @field_validator("name")
    @classmethod
    def _is_no_path(cls, value: str) -> str:
        if value in (".", ".."):
            raise ValueError("expected a name that can be part of a URL")
        return value


class Reset(_Body):
    """The place in the log at which a consumer starts again."""

    start: Start = Field(default="beginning", description=_START_TEXT)


class Receive(_Body):
    """The number of items to receive."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max": 10, "wait": 20}]})

    max: Whole = Field(default=1, ge=1, le=1000, strict=True, description="the most items to receive")
    wait: Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False, strict=True)] = Field(
        default=0, description="seconds to wait for the first item"
    )
    visibility: Visibility | None = Field(default=None, description=f"{_VISIBILITY_TEXT}; null: the consumer's")


class Ack(_Body):
    """Items to acknowledge, by their ack_ids."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ack_ids": ["7ffb1b4e-3b9c-4a52-8f0e-6b7c3c1a9d10"]}]})

    ack_ids: list[UUID] = Field(min_length=1, max_length=10_000)


class Nack(Ack):
    """Items to deliver again."""

    delay: Seconds | None = Field(
        default=None, description="seconds until the delivery; null: 1, doubled after each delivery, at most 300"
    )


class Extend(Ack):
    """Items whose visibility to extend."""

    visibility: Visibility = Field(description="seconds from now until the items are delivered again")


class Advance(_Body):
    """A cursor's acknowledgement."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"seq": 1200}]})

    seq: _SEQ = Field(description="everything up to this seq is acknowledged")


class CountedLetters(_Body):
    """All dead letters up to one. They must be as many as the client has counted, since an older one may come later."""

    through: _SEQ | None = Field(default=None, description="the newest letter that the client has seen")
    count: _SEQ | None = Field(default=None, description="how many letters it has seen up to `through`; else 409")

    def require_one_choice(self, named: Sequence[int] | None) -> Self:
        """Raise ValueError unless only `named` is given, or `through` and `count` together, or none of them."""
        if (self.through is None) != (self.count is None):
            raise ValueError("give both through and count, or neither")
        if self.through is not None and named is not None:
            raise ValueError("give the dead letters, or through and count, not both")
        return self


class DeadLetterSeqs(CountedLetters):
    """The chosen dead letters: those with these seqs, all up to a seq, or all if no field is given."""

    seqs: Annotated[list[_SEQ], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None, description="null: all dead letters"
    )

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        return self.require_one_choice(self.seqs)


class DeadLetterIds(CountedLetters):
    """Dead letters of the log by their id, or all up to one; without a field: all."""

    ids: Annotated[list[_SEQ], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None, description="null: all parked dead letters"
    )

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        return self.require_one_choice(self.ids)


class Consumer(BaseModel):
    """A consumer and its status. Counts stop at 100 000. A field that does not apply to the kind is null."""

    id: int
    name: str
    kind: Literal["records", "cursor"]
    tables: list[str]
    actions: list[str]
    state: Literal["active", "paused"]
    events_table: str | None = Field(description="the events table that the consumer reads; null: the default one")
    group_by: list[str] | None
    collapse: bool
    visibility: float = Field(description="seconds")
    max_deliveries: int | None
    max_unacknowledged: int | None
    routed: bool | None = Field(
        description="true if a route sends changes to its events table; null: the default table"
    )
    position: int = Field(
        description="cursor: the last acknowledged seq; records: the seq after which the consumer began"
    )
    reader: str | None = Field(description="cursor: the client that reads its stream")
    reader_since: datetime | None
    created_at: datetime
    updated_at: datetime
    pending: int | None = Field(description="records: items that wait, including those that will be delivered again")
    in_flight: int | None = Field(description="records: items that are delivered and not acknowledged")
    dead: int | None = Field(description="records: dead letters")
    oldest_pending_seconds: float | None = Field(
        description="age in seconds of the oldest waiting item, since its change arrived in the log"
    )
    lag: int = Field(description="number of seqs from its position in the log to the newest event")


class Consumers(BaseModel):
    """A list of consumers."""

    data: list[Consumer]


class Change(BaseModel):
    """A change of a row, as in the log; numbers keep all digits."""

    seq: int
    commit_lsn: int | None
    commit_idx: int | None
    source_table_schema: str
    source_table_name: str
    record_pk: str
    record: dict[str, Any]
    changes: dict[str, Any] | None
    exact: dict[str, Any] | None
    action: str
    unchanged_columns: list[str] | None
    transaction_annotations: Any = None
    metadata: Any = None
    committed_at: datetime


class Event(Change):
    """A row of the log: its columns by name, as Postgres prints them."""

    source_database_id: UUID
    source_epoch: int
    xid: int | None
    source_table_oid: int
    inserted_at: datetime


class Events(BaseModel):
    """Part of the log, in its order."""

    data: list[Event]
    last_seq: int = Field(
        description="the value of `after` to continue with; also skips events that the filters left out. With `before` "
        "or `key`: the newest seq of the log"
    )
    first_seq: int | None = Field(
        default=None, description="with `before` or `key`: the value of `before` to continue with; 0: nothing is older"
    )


class DeadLetter(Change):
    """An item that was delivered max_deliveries times without an acknowledgement."""

    source_table_oid: int
    deliveries: int
    commit_lsn_text: str | None = Field(description="`commit_lsn` as Postgres prints it")


class DeadLetters(BaseModel):
    """A list of dead letters."""

    data: list[DeadLetter]


class Item(Change):
    """An item of work. Acknowledge it by its `ack_id`, which is new for every delivery."""

    ack_id: UUID
    deliveries: int = Field(description="deliveries since the row last changed, including this one")


class Items(BaseModel):
    """The delivered items; empty if none was available."""

    data: list[Item]


class Settled(BaseModel):
    """The number of items that were found. An unknown `ack_id`, or one of an earlier delivery, is ignored."""

    count: int


class Position(BaseModel):
    """A cursor's position now."""

    position: int


class Ready(BaseModel):
    """The readiness of this server: whether it writes the log, and if not, why."""

    ready: bool
    reasons: list[str]
    followers: list[str] = Field(description="for each follower that does not follow all its tables: what it lacks")
    schedules: list[str] = Field(description="for each schedule whose last run failed: why")
