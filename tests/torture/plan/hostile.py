"""Settings of a role that would stop, blind or mislead a server that left them as they are."""

from __future__ import annotations

import random
from collections.abc import Mapping

HOSTILE: Mapping[str, str] = {
    "statement_timeout": "100ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "50ms",
    "idle_session_timeout": "100ms",
    "transaction_timeout": "100ms",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "xmloption": "document",
    "TimeZone": "Asia/Kathmandu",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_monetary": "C.UTF-8",
    "quote_all_identifiers": "on",
    "client_min_messages": "error",
    "row_security": "off",
    "client_encoding": "LATIN1",
    "search_path": "pg_catalog",
    "synchronous_commit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_indexscan": "off",
    "enable_seqscan": "off",
    "jit_above_cost": "0",
    "work_mem": "64kB",
    "check_function_bodies": "off",
    "default_toast_compression": "pglz",
    "session_replication_role": "replica",
}
"""Settings that an older version lacks are left out there."""
SIDES = ("source", "log")

Settings = Mapping[str, tuple[str, ...]]
"""Names of `HOSTILE` by the side whose role has them."""
ALL: Settings = {side: tuple(HOSTILE) for side in SIDES}


def draw(seed: int) -> Settings:
    """Some for each side in two seeds of three, none in the third."""
    chance = random.Random(f"hostile {seed}")
    if seed % 3 == 0:
        return {}
    return {side: tuple(sorted(chance.sample(list(HOSTILE), chance.randint(1, 6)))) for side in SIDES}
