"""What PyIceberg raises, and what to say of it."""

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
"""What a catalog, a file or PyIceberg raises."""


def first_line(error: BaseException) -> str:
    """Its first line, or its name where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
