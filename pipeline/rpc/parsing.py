"""Parses the messages of clients. An unreadable one becomes None: grpcio itself would send and log an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError

from pipeline.errors import WrongArgumentError

T = TypeVar("T")


def parser(read: Callable[[bytes], T]) -> Callable[[bytes], T | None]:
    """Return a deserializer that calls `FromString` of a kind of message, and returns None if that fails."""

    def parse(data: bytes) -> T | None:
        try:
            return read(data)
        except DecodeError:
            return None

    return parse


def require(message: T | None) -> T:
    """Return the message. Raises WrongArgumentError if it could not be read."""
    if message is None:
        raise WrongArgumentError("the message is not of the type that this call takes")
    return message
