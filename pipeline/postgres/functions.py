"""The SQL functions and views of the pipeline database. They are files, which are installed if a text has changed.

A function keeps its signature for at least one more version, because clients of the previous version call it.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

VERSION = 22
"""The version of the functions. Raise it with every change: an older server never replaces newer functions."""
ORDER = (
    ("postgres", ("advisory_locks",)),
    ("log", ("matches", "populate", "events_relation", "find_events_table", "name_of_events_table")),
    ("log", ("log_place", "default_events_table", "before_jump", "seqs_between")),
    ("log", ("log_head", "log_floor", "inserted_at")),
    (
        "consumers.queue",
        (
            *("consumer_of", "progress_id", "require_events_table", "start_seq", "wake_consumer"),
            *("check_consumer", "create_consumer", "drop_consumer"),
            *("set_consumer_state", "pause_consumer", "resume_consumer", "reset_consumer"),
            *("commit_durably", "require_read_committed", "move_up", "event_of", "bury"),
            *("release_expired", "receivable", "hand_out", "with_events", "receive"),
            *("visibility_of", "next_visible", "ack", "nack", "extend", "give_back"),
            *("dead_records", "retry_in_line", "retry_dead", "discard_dead"),
        ),
    ),
    ("consumers.cursor", ("advance", "passed_upto")),
    ("log", ("readers",)),
    ("snapshots", ("partition_truncates", "snapshots")),
)
"""The files in the packages' `functions/`, in an order in which each function comes after those that it calls."""


def are_current(connection: Connection) -> bool:
    """True if no function must be installed. The database must be at head."""
    query = "select version > %s or (version = %s and digest = %s) from pipeline.installed_functions"
    return bool(queries.value(connection, query, (VERSION, VERSION, digest()), default=False))


def install(connection: Connection) -> None:
    """Install the functions of this version, in one transaction. Does nothing if they are current.

    The caller must hold the migration lock.
    """
    with connection.transaction():
        if not are_current(connection):
            connection.execute(script().encode())


@cache
def script() -> str:
    """Return the SQL that `install` executes."""
    return f"""{texts()}
insert into pipeline.installed_functions (version, digest) values ({VERSION}, '{digest()}')
on conflict (only_one) do update set version = excluded.version, digest = excluded.digest, installed_at = now();
"""  # noqa: S608  our own texts


@cache
def digest() -> str:
    """Return a digest that identifies these texts."""
    return sha256(texts().encode()).hexdigest()


@cache
def texts() -> str:
    """Return the texts of all files, in their order."""
    return "\n".join(
        files(f"pipeline.{package}").joinpath("functions", f"{name}.sql").read_text("utf-8")
        for package, names in ORDER
        for name in names
    )
