import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    INSERT: _ClassVar[Action]
    UPDATE: _ClassVar[Action]
    DELETE: _ClassVar[Action]
    TRUNCATE: _ClassVar[Action]
    READ: _ClassVar[Action]
    MESSAGE: _ClassVar[Action]
ACTION_UNSPECIFIED: Action
INSERT: Action
UPDATE: Action
DELETE: Action
TRUNCATE: Action
READ: Action
MESSAGE: Action

class Position(_message.Message):
    __slots__ = ("source_epoch", "commit_lsn", "seq")
    SOURCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LSN_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    source_epoch: int
    commit_lsn: int
    seq: int
    def __init__(self, source_epoch: _Optional[int] = ..., commit_lsn: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("consumer", "after", "tables", "actions", "follow", "events_table")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    EVENTS_TABLE_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    after: Position
    tables: _containers.RepeatedScalarFieldContainer[str]
    actions: _containers.RepeatedScalarFieldContainer[str]
    follow: bool
    events_table: str
    def __init__(self, consumer: _Optional[str] = ..., after: _Optional[_Union[Position, _Mapping]] = ..., tables: _Optional[_Iterable[str]] = ..., actions: _Optional[_Iterable[str]] = ..., follow: _Optional[bool] = ..., events_table: _Optional[str] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("position", "xid", "committed_at", "complete", "changes")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    position: Position
    xid: int
    committed_at: _timestamp_pb2.Timestamp
    complete: bool
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., xid: _Optional[int] = ..., committed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete: _Optional[bool] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("seq", "commit_idx", "schema", "table", "action", "record_pk", "record", "changes", "exact", "unchanged_columns", "annotations", "metadata")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_IDX_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RECORD_PK_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    seq: int
    commit_idx: int
    schema: str
    table: str
    action: Action
    record_pk: str
    record: str
    changes: str
    exact: str
    unchanged_columns: _containers.RepeatedScalarFieldContainer[str]
    annotations: str
    metadata: str
    def __init__(self, seq: _Optional[int] = ..., commit_idx: _Optional[int] = ..., schema: _Optional[str] = ..., table: _Optional[str] = ..., action: _Optional[_Union[Action, str]] = ..., record_pk: _Optional[str] = ..., record: _Optional[str] = ..., changes: _Optional[str] = ..., exact: _Optional[str] = ..., unchanged_columns: _Optional[_Iterable[str]] = ..., annotations: _Optional[str] = ..., metadata: _Optional[str] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("consumer", "position", "session")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    position: Position
    session: str
    def __init__(self, consumer: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class AckReply(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: Position
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...
