"""Errors of PyIceberg, and their text in messages."""

from __future__ import annotations

from pyarrow import ArrowException
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchPropertyException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)

FAILURES = (
    OSError,
    ValueError,
    ArrowException,
    RESTError,
    CommitFailedException,
    NoSuchTableError,
    NoSuchPropertyException,
    TableAlreadyExistsError,
)
"""Errors that a catalog, a file or PyIceberg raises."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the error's name if it has no text."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
