"""Requests and answers about backfills, as OpenAPI describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pipeline.api.patterns import NO_ZERO_BYTE

_Text = Annotated[str, StringConstraints(pattern=NO_ZERO_BYTE, max_length=1000, strict=True)]
_Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**64, strict=True)]
_Value = Annotated[bool, Field(strict=True)] | _Whole | _Number | _Text
Operator = Literal[
    "=", "<>", "!=", "<", "<=", ">", ">=", "like", "ilike", "in", "not in", "is null", "is not null"
]  # fmt: skip


class Term(BaseModel):
    """One comparison of a column. The value takes the column's type; dates and the like are texts."""

    model_config = ConfigDict(extra="forbid")

    column: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=NO_ZERO_BYTE)]
    operator: Operator
    value: _Value | Annotated[list[_Value], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="a list for `in` and `not in`; none for `is null` and `is not null`"
    )


class NewBackfill(BaseModel):
    """What to read."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"table": "public.orders", "where": [{"column": "id", "operator": ">=", "value": 5}]}]
        },
    )

    table: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_ZERO_BYTE)] = Field(
        description="`schema.table`, of a table that is captured"
    )
    where: list[Term] = Field(
        default_factory=list, max_length=100, description="only rows for which all of these hold; empty: all rows"
    )
    differences: bool = Field(
        default=False, strict=True, description="compare the whole table with the log, and append only what differs"
    )


class Backfill(BaseModel):
    """A backfill, and how far it is. Null: not known, or not yet."""

    id: int
    table: str
    kind: Literal["initial", "asked", "differences"] = Field(
        description="initial: its table had joined; asked: somebody asked for it; differences: it compares"
    )
    condition: str | None = Field(description="only rows for which this holds; null: all")
    state: Literal["waiting", "reading", "paused", "complete", "failed", "cancelled"]
    reason: str | None = Field(description="what it waits for or does, why it has failed, or what it could not know")
    ranges_done: int
    ranges_all: int
    rows_read: int
    rows: int = Field(description="events added; the log had the same or something newer of the rest of `rows_read`")
    rows_estimated: int | None = Field(description="of the whole table, whatever the condition")
    rows_per_second: float | None = Field(description="since it began; null unless it is reading")
    seconds_left: float | None = Field(description="at the rate so far")
    events_table: str | None
    first_seq: int | None
    last_seq: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Backfills(BaseModel):
    """A list, the newest first."""

    data: list[Backfill]
