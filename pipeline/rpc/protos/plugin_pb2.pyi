from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientAck(_message.Message):
    __slots__ = ("pg_lsn",)
    PG_LSN_FIELD_NUMBER: _ClassVar[int]
    pg_lsn: int
    def __init__(self, pg_lsn: _Optional[int] = ...) -> None: ...

class ClientMessage(_message.Message):
    __slots__ = ("ack",)
    ACK_FIELD_NUMBER: _ClassVar[int]
    ack: ClientAck
    def __init__(self, ack: _Optional[_Union[ClientAck, _Mapping]] = ...) -> None: ...

class InsertEvent(_message.Message):
    __slots__ = ("pg_lsn", "schema", "table", "json_payload")
    PG_LSN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    JSON_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    pg_lsn: int
    schema: str
    table: str
    json_payload: str
    def __init__(self, pg_lsn: _Optional[int] = ..., schema: _Optional[str] = ..., table: _Optional[str] = ..., json_payload: _Optional[str] = ...) -> None: ...

class UpdateEvent(_message.Message):
    __slots__ = ("pg_lsn", "schema", "table", "json_payload")
    PG_LSN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    JSON_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    pg_lsn: int
    schema: str
    table: str
    json_payload: str
    def __init__(self, pg_lsn: _Optional[int] = ..., schema: _Optional[str] = ..., table: _Optional[str] = ..., json_payload: _Optional[str] = ...) -> None: ...

class DeleteEvent(_message.Message):
    __slots__ = ("pg_lsn", "schema", "table", "json_payload")
    PG_LSN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    JSON_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    pg_lsn: int
    schema: str
    table: str
    json_payload: str
    def __init__(self, pg_lsn: _Optional[int] = ..., schema: _Optional[str] = ..., table: _Optional[str] = ..., json_payload: _Optional[str] = ...) -> None: ...

class TruncateEvent(_message.Message):
    __slots__ = ("pg_lsn", "schema", "table")
    PG_LSN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    pg_lsn: int
    schema: str
    table: str
    def __init__(self, pg_lsn: _Optional[int] = ..., schema: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("insert", "update", "delete", "truncate")
    INSERT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    insert: InsertEvent
    update: UpdateEvent
    delete: DeleteEvent
    truncate: TruncateEvent
    def __init__(self, insert: _Optional[_Union[InsertEvent, _Mapping]] = ..., update: _Optional[_Union[UpdateEvent, _Mapping]] = ..., delete: _Optional[_Union[DeleteEvent, _Mapping]] = ..., truncate: _Optional[_Union[TruncateEvent, _Mapping]] = ...) -> None: ...
