"""Sets the parameters of every session, whatever the defaults of role or database, as the client's `EventLog` does.

The server has the same table in pipeline/postgres/session_settings.py; this package shares no code with the server.
"""

from __future__ import annotations

SETTINGS = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",  # from 17 on
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "xmloption": "content",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "client_encoding": "UTF8",
    "quote_all_identifiers": "off",
    "client_min_messages": "notice",
    "jit": "off",
    "row_security": "on",
}


def statement() -> str:
    """Return the query that sets the parameters, except those that an older server does not know."""
    calls = (
        f"case when current_setting('{name}', true) is not null then set_config('{name}', '{value}', false) end"
        f" as set_{number}"
        for number, (name, value) in enumerate(SETTINGS.items())
    )
    return f"select {', '.join(calls)}"
