"""The psql command that opens a database, for people to copy. It never has a password."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_OPTIONS = {"host": "-h", "port": "-p", "user": "-U", "dbname": "-d"}
_OTHERS = (
    "hostaddr",
    "service",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "channel_binding",
    "require_auth",
    "gssencmode",
    "target_session_attrs",
)
"""Parameters without which a connection may fail or reach another server. None of them is a secret."""


def command(dsn: str, query: str | None = None, bin_dir: Path | None = None) -> str:
    """Return a shell command that opens the database of this DSN in psql, or only runs `query` there.

    `bin_dir` has a psql for machines on which none is installed.
    """
    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value}
    shown = {name: given[name] for name in (*_OPTIONS, *_OTHERS) if name in given}
    program = str(bin_dir / "psql") if bin_dir and not shutil.which("psql") else "psql"
    plain = shown.keys() <= _OPTIONS.keys() and "=" not in shown.get("dbname", "")
    options = [part for name in shown for part in (_OPTIONS[name], shown[name])] if plain else [make_conninfo(**shown)]
    return shlex.join([program, *options, *(["-c", query] if query else [])])
