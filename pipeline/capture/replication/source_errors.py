"""Translates the source's refusal of a command, or the end of the stream, from its SQLSTATE into our errors."""

from __future__ import annotations

from psycopg import OperationalError, errors, pq

from pipeline.errors import (
    PublicationMissingError,
    ReplicationError,
    SlotInUseError,
    SlotMissingError,
    SlotUnusableError,
    SourceUnfitError,
    StatementRefusedError,
    UndecodableChangeError,
)
from pipeline.postgres import connections

NEW_SLOT = (
    "`pipeline sources adopt` continues without what is missing; if it finds nothing to do, delete the slot first"
)
_BEYOND_THE_DATA = ("08", "25", "28", "40", "53", "57", "58", "XX001", "XX002")
"""SQLSTATEs of errors that are not caused by the change that the source was to send."""
_BY_SQLSTATE: dict[str, type[ReplicationError]] = {
    "55006": SlotInUseError,
    "42704": SlotMissingError,
    "55000": SlotUnusableError,
    "42501": SourceUnfitError,
}


def refusal_error(result: pq.abc.PGresult, dsn: str, connection_message: str) -> Exception:
    """Return the error for a failed command. `connection_message`: used if the result has no message."""
    text = message(result) or "; ".join(connection_message.splitlines())
    state = _sqlstate(result)
    if state == errors.UndefinedObject.sqlstate and "publication" in text:
        return PublicationMissingError(f"{text} where the slot still has to send changes; {NEW_SLOT}")
    if state in _BY_SQLSTATE:
        return _BY_SQLSTATE[state](f"the source refuses: {text}")
    if state.startswith(("57P0", "08")) or not state:
        return connections.unavailable(dsn, "source", OperationalError(text))
    if state.startswith(("57", "53")):
        return StatementRefusedError(f"the source refuses: {text} (SQLSTATE {state})", "source")
    return ReplicationError(f"the source stopped the stream: {text} (SQLSTATE {state})")


def ending_error(result: pq.abc.PGresult | None, dsn: str, connection_message: str) -> Exception:
    """Return why the stream has ended: UndecodableChangeError if the change that was to be sent is the cause."""
    if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
        return connections.unavailable(dsn, "source", OperationalError("the source ended the replication stream"))
    error = refusal_error(result, dsn, connection_message)
    state = _sqlstate(result)
    if type(error) is not ReplicationError or state.startswith(_BEYOND_THE_DATA):
        return error
    where = (result.error_field(pq.DiagnosticField.CONTEXT) or b"").decode("utf-8", "replace")
    return UndecodableChangeError("; ".join([str(error), *where.splitlines()]), message(result), state)


def message(result: pq.abc.PGresult) -> str:
    """Return the primary message of an error or a notice."""
    return (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")


def _sqlstate(result: pq.abc.PGresult) -> str:
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
