"""The settings of our sessions: one table here, and the same one for what Spark runs."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.postgres import session_settings
from pyspark_sequin_events import session_settings as of_spark
from tests.torture.plan.hostile import HOSTILE

ROOT = Path(__file__).parents[3]
CONNECTS = re.compile(
    r"psycopg\.connect\(|Connection\.connect\(|AsyncConnectionPool\(|dbapi\.connect\(|adbc_driver_postgresql\.connect\("
)
WITH_OWN_PATH = {
    # Sessions of the pipeline database.
    "pipeline/log/wakeups.py",
    "pipeline/consumers/cursor/feed.py",
    "pipeline/consumers/cursor/claims.py",
    "pipeline/log/staging/worker_claim.py",
    "pipeline/capture/replication/lag_sampler.py",  # has one at the source too, with `SOURCE`
    # A session's walsender, which prints names as wal2json does, and runs nothing but the query for all settings.
    "pipeline/wires/pgdeltastream/sessions/opening.py",
}
"""Files that open sessions with the database's own search_path."""
ALLOWED = {
    "pipeline/postgres/connections.py",
    "pipeline/postgres/embedded.py",  # its own server, which no user has altered yet
    "pipeline/postgres/pool.py",  # sets what `API` has
    "pipeline/capture/source/walsender.py",  # who calls it sets what `WALSENDER` has
    "spark/pyspark_sequin_events/catalog.py",
}


def test_spark_sets_what_readers_of_the_server_set() -> None:
    assert of_spark.SETTINGS == session_settings.READER


def test_connections_are_made_only_where_the_settings_are_set() -> None:
    files = [path for folder in ("pipeline", "spark") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if CONNECTS.search(path.read_text("utf-8"))}
    assert found == ALLOWED


def test_sessions_at_sources_and_followers_search_no_user_schema() -> None:
    for what in ("source", 'follower "f"', "follower", "database"):
        assert session_settings.for_database(what) == session_settings.SOURCE
    assert session_settings.for_database("pipeline database") == session_settings.SERVER
    named = {name: table for name, table in vars(session_settings).items() if name.isupper() and name[0] != "_"}
    own_path = {name for name, table in named.items() if isinstance(table, dict) and table.get("search_path") != ""}
    assert own_path == {"SERVER", "READER", "API"}
    files = [path for path in (ROOT / "pipeline").rglob("*.py") if path.name != "session_settings.py"]
    found = {str(path.relative_to(ROOT)) for path in files if "session_settings.SERVER" in path.read_text("utf-8")}
    assert found == WITH_OWN_PATH


def test_every_setting_is_tried_with_a_hostile_value() -> None:
    for settings in (session_settings.SERVER, session_settings.READER, session_settings.API):
        assert settings.keys() - {"jit"} <= HOSTILE.keys()
