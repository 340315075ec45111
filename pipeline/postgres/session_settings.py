"""The settings of our sessions, by kind of session; they replace the defaults of role, database, server and DSN.

A query sets them once a session is connected, because poolers refuse startup options. A walsender accepts it, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.wal.encoding import SESSION_SETTINGS

_EVERY = {
    # Timeouts end a session or a statement at an inconvenient moment: each caller limits its own waits.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",  # from 17 on
    # These say what a transaction may do, and which rows it sees.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # These say how literals are read.
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "xmloption": "content",
    # These say how values and names are printed, and which messages are sent: only a warning reports a publication
    # that does not exist.
    **{name: value for name, value in SESSION_SETTINGS.items() if name != "search_path"},
    "client_encoding": "UTF8",
    "quote_all_identifiers": "off",
    "client_min_messages": "notice",
    # If a kind of plan is disabled, its cost is so high that Postgres 15 to 17 compile it: a catalog query took 0.9 s.
    "jit": "off",
}
SERVER = {**_EVERY, "row_security": "off"}
"""Settings for the pipeline database. If a policy would hide rows, the query fails instead of omitting them."""
SOURCE = {**SERVER, "search_path": ""}
"""Settings for the source and followers. Their search_path is empty.

Otherwise a user who may create objects in a schema of the path could add a function or operator that fits one of our
calls better than that of Postgres, and it would run as our user."""
SNAPSHOT = {name: value for name, value in SOURCE.items() if not name.endswith("_timeout")}
"""Settings for reading tables of the source. The timeouts that its owner has set for transactions apply."""
READER = {**_EVERY, "row_security": "on"}
"""Settings for reading as a client's role (`EventLog`). The policies on an events table apply."""
API = {
    **SERVER,
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}
"""Settings for requests: none may hold a connection, or a lock that the shuffler needs, for long."""
WALSENDER = {**SERVER, **SESSION_SETTINGS}
COPY = WALSENDER
"""Settings for copying a complete table, which may take hours: values are printed as in the log."""
FOLLOWER = {
    **SERVER,
    **SESSION_SETTINGS,  # texts are read as they were printed
    # Foreign keys, cascades and ordinary triggers ran at the source; the log contains their effects.
    "session_replication_role": "replica",
    # Tables grow while a session lasts: a plan from when they were empty would read all their rows for each batch.
    "plan_cache_mode": "force_custom_plan",
}
"""Settings for writing to a follower. The role may need `grant set on parameter session_replication_role`."""
_DURABLE = """
    case when pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off'
        then pg_catalog.set_config('synchronous_commit', 'on', false) end
"""
"""SQL that prevents that a crash undoes our commits. The owner decides which replicas must confirm a commit."""

_ENDED = """
    case when pg_catalog.version() operator(pg_catalog.~) 'linux'
        then pg_catalog.set_config('client_connection_check_interval', '1s', false) end
"""
"""SQL that ends a session within a second after its process was killed, also in the middle of a statement.

Only Linux accepts the setting."""

_FIRST = ("statement_timeout", "jit")
"""The settings that are set before the query for the others.

If Postgres compiles that query, it may take longer than the role's timeout, and none of our sessions could begin."""


def for_database(what: str) -> Mapping[str, str]:
    """Return the settings of a session in the database that messages call `what`."""
    return SERVER if what == "pipeline database" else SOURCE


def statement(settings: Mapping[str, str]) -> str:
    """Return the query that sets these for the rest of the session. It skips settings that an older server lacks.

    Every name in it has its schema, because the owner of a database chooses the search_path that applies before it.
    """
    first = "".join(f"set {name} = '{settings[name]}'; " for name in _FIRST if name in settings)
    calls = (
        f"case when pg_catalog.current_setting('{name}', true) is not null"
        f" then pg_catalog.set_config('{name}', '{value}', false) end"
        for name, value in settings.items()
    )
    return f"{first}select {', '.join(calls)}, {_DURABLE.strip()}, {_ENDED.strip()}"
