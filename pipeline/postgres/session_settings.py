"""What our sessions set, whatever role, database, server or DSN have as their default: one table, by kind of session.

Set once a session is connected, with a query, which a walsender takes too: poolers refuse startup options.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.wal.encoding import SESSION_SETTINGS

_EVERY = {
    # What ends a session, or a statement of it, at an inconvenient moment: each caller bounds its own waits.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",  # from 17 on
    # What a transaction may do, and sees.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # How literals are read.
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "xmloption": "content",
    # How values and names are written, and what is said: of a publication that is left out only a warning tells.
    **{name: value for name, value in SESSION_SETTINGS.items() if name != "search_path"},
    "client_encoding": "UTF8",
    "quote_all_identifiers": "off",
    "client_min_messages": "notice",
    # Where a plan is disabled its cost is so large that Postgres 15 to 17 compile it: a look at the catalog took 0.9 s.
    "jit": "off",
}
SERVER = {**_EVERY, "row_security": "off"}
"""The pipeline database. Rows that a policy would hide are an error, never left out in silence."""
SOURCE = {**SERVER, "search_path": ""}
"""The source and followers. Every user who may create in a schema of the database's own path could otherwise add a
function or operator that fits a call of ours better than Postgres' own one, and it would run as our user."""
SNAPSHOT = {name: value for name, value in SOURCE.items() if not name.endswith("_timeout")}
"""Reading tables of the source: what its owner allows a transaction there to take holds."""
READER = {**_EVERY, "row_security": "on"}
"""Sessions that read for a client under its own role: `EventLog`. Policies on an events table hold."""
API = {
    **SERVER,
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}
"""Requests: none holds a connection, or a lock that the shuffler needs, for long."""
WALSENDER = {**SERVER, **SESSION_SETTINGS}
COPY = WALSENDER
"""Copying a table whole, which may take hours: values are printed as the log has them."""
FOLLOWER = {
    **SERVER,
    **SESSION_SETTINGS,  # texts are read as they were printed
    # Foreign keys, cascades and ordinary triggers did their work at the source; the log has what came of it.
    "session_replication_role": "replica",
    # Tables grow while a session lasts: a plan of when they were empty reads all of them for each batch.
    "plan_cache_mode": "force_custom_plan",
}
"""Writing to a follower. A role that may not set the first needs `grant set on parameter session_replication_role`."""
_DURABLE = """
    case when pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off'
        then pg_catalog.set_config('synchronous_commit', 'on', false) end
"""
"""What we have committed must not be taken back by a crash; how far it is replicated by then is the owner's choice."""

_ENDED = """
    case when pg_catalog.version() operator(pg_catalog.~) 'linux'
        then pg_catalog.set_config('client_connection_check_interval', '1s', false) end
"""
"""A session whose process was killed ends within a second, also in the middle of a statement: other systems refuse."""

_FIRST = ("statement_timeout", "jit")
"""Set before the query for all: compiled, that one may take longer than a role's timeout, and none of ours begins."""


def of_database(what: str) -> Mapping[str, str]:
    """The settings of a session in the database that messages call `what`."""
    return SERVER if what == "pipeline database" else SOURCE


def statement(settings: Mapping[str, str]) -> str:
    """The query that sets them for the rest of the session; what an older server does not know is left out.

    It has every name with its schema, because the owner of a database chooses which search_path is in force before.
    """
    first = "".join(f"set {name} = '{settings[name]}'; " for name in _FIRST if name in settings)
    calls = (
        f"case when pg_catalog.current_setting('{name}', true) is not null"
        f" then pg_catalog.set_config('{name}', '{value}', false) end"
        for name, value in settings.items()
    )
    return f"{first}select {', '.join(calls)}, {_DURABLE.strip()}, {_ENDED.strip()}"
