"""What an error is over each transport: one table for HTTP and WebSocket."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolTimeout

from pipeline import close_codes, refusals
from pipeline.errors import (
    ConfigError,
    ConsumerChangedError,
    CursorExpiredError,
    CursorHeldError,
    DatabaseUnavailableError,
    PipelineError,
    UnknownConsumerError,
    WrongConsumerKindError,
)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.UndefinedObject("x"), 404, close_codes.UNKNOWN),
        (errors.DuplicateObject("x"), 409, close_codes.RESTART),
        (errors.InvalidParameterValue("x"), 422, close_codes.RESTART),
        (errors.WrongObjectType("x"), 409, close_codes.POLICY),
        (errors.ObjectInUse("x"), 409, close_codes.HELD),
        (errors.NumericValueOutOfRange("x"), 410, close_codes.EXPIRED),
        (errors.AdminShutdown("x"), 503, close_codes.RESTART),
        (errors.LockNotAvailable("x"), 503, close_codes.RESTART),
        (errors.QueryCanceled("x"), 503, close_codes.RESTART),
        (errors.UndefinedTable("x"), 503, close_codes.RESTART),
        (errors.UndefinedColumn("x"), 503, close_codes.RESTART),
        (errors.UntranslatableCharacter("x"), 422, close_codes.RESTART),
        (errors.InsufficientPrivilege("x"), 500, close_codes.RESTART),
        (psycopg.OperationalError("x"), 503, close_codes.RESTART),
        (PoolTimeout("x"), 503, close_codes.RESTART),
        (ConnectionResetError("x"), 503, close_codes.RESTART),
        (UnknownConsumerError("x"), 404, close_codes.UNKNOWN),
        (WrongConsumerKindError("x"), 409, close_codes.POLICY),
        (CursorHeldError("x"), 409, close_codes.HELD),
        (CursorExpiredError("x", 7), 410, close_codes.EXPIRED),
        (ConsumerChangedError("x"), 409, close_codes.RESTART),
        (DatabaseUnavailableError("x"), 503, close_codes.RESTART),
        (ConfigError("a setting, not what was asked"), 500, close_codes.RESTART),
        (PipelineError("x"), 500, close_codes.RESTART),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_status_and_close_code(error: Exception, status: int, code: int) -> None:
    ours = refusals.for_reader(error)
    assert ours is not None
    codes = refusals.codes(ours)
    assert (codes.status, codes.close_code) == (status, code)


def test_what_nobody_expected_stays_that() -> None:
    assert refusals.for_reader(KeyError("x")) is None


def test_only_what_the_functions_say_is_a_refusal() -> None:
    assert isinstance(refusals.from_sqlstate(errors.InvalidParameterValue("x")), ConfigError)
    assert refusals.from_sqlstate(errors.UndefinedTable("x")) is None
    assert refusals.from_sqlstate(psycopg.OperationalError("x")) is None


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.InsufficientPrivilege("x"), "connect as a user who has the privilege, or grant it"),
        (errors.UndefinedColumn("x"), "run `pipeline migrate`"),
        (errors.UndefinedFunction("x"), "run `pipeline migrate`"),
        (errors.DiskFull("x"), "run `pipeline check`"),
    ],
)
def test_a_command_says_what_to_do(error: psycopg.Error, remedy: str) -> None:
    said = refusals.for_command(error)
    assert said is not None
    assert str(said).startswith("a database rejected a statement: x; ")
    assert remedy in str(said)
    assert refusals.for_command(KeyError("x")) is None


def test_a_statement_that_the_source_rejects_needs_no_migration() -> None:
    error = errors.UndefinedTable("x")
    error.__dict__["place"] = "source"
    assert str(refusals.for_command(error)) == (
        "the source rejected a statement: x; run `pipeline check` to see what is wrong"
    )


def test_clients_get_commands_and_requests_instead_of_sql() -> None:
    functions = (Path(__file__).parents[2] / "pipeline").glob("**/functions/*.sql")
    hints = {hint for path in functions for hint in re.findall(r"hint = '([^']+)\.'", path.read_text("utf-8"))}
    assert len(hints) >= 5
    in_sql = {hint.partition(":")[0] for hint in hints if "select " in hint}
    assert in_sql == set(refusals._REMEDIES)
    assert [remedy for remedy in refusals._REMEDIES.values() if "select" in remedy] == []
