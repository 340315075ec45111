"""Answers about followers, as OpenAPI describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field


class FollowerTable(BaseModel):
    """A table of a follower."""

    table: str
    state: Literal["waiting", "copying", "following", "stopped", "different"]
    reason: str | None = Field(description="why it is in that state")
    remedy: str | None = Field(description="what to do about that")


class Follower(BaseModel):
    """A database that is kept equal to the source, and how far it is. Null: not known, or not yet."""

    name: str
    state: Literal["copying", "following", "waiting", "paused", "stopped"]
    reason: str | None = Field(description="why it is in that state")
    remedy: str | None = Field(description="what to do about that")
    seq: int = Field(description="everything up to it is applied")
    commit_lsn: str | None = Field(description="of the last transaction that is applied, as Postgres prints LSNs")
    commit_lsn_bytes: int | None = Field(description="the same as a number")
    committed_at: datetime | None = Field(description="when that was committed at the source")
    lag_seqs: int = Field(description="events that are not applied")
    lag_seconds: float = Field(description="the age of the first of them; 0: there is none")
    tables: list[FollowerTable]
    database: str = Field(description="where it is, without any secret")
    patterns: list[str] = Field(description="which tables it has; empty: all that are captured")
    copy_: Literal["source", "log", "none"] = Field(alias="copy", description="where its first rows come from")
    schema_: Literal["create", "exists"] = Field(alias="schema", description="whether tables are created")
    ddl: Literal["follow", "stop"]
    on_rewrite: Literal["copy", "stop"]
    truncate: bool = Field(description="whether tables with rows are emptied before they are copied")
    made_at: datetime
    made_seq: int = Field(description="the newest seq when it was added")
    reported_at: datetime | None = Field(description="when its applier last said how far it is")
    lacks: str | None = Field(description="why it does not follow each of its tables; null: it does")


class Followers(BaseModel):
    """A list, ordered by name."""

    data: list[Follower]
