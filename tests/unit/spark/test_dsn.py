"""A DSN without its password is the same place: libpq reads it so."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pyspark_sequin_events.dsn import VARIABLE, password, with_own_password, without_password

DSNS = (
    "host=h dbname=x",
    "host=h password=geheim dbname=x",
    "  host = 'a b'  password = 'it\\'s \\\\ here'   user=u ",
    "password='' host=h",
    make_conninfo(host="h", password="a 'b\\ c", application_name="pipeline export"),
    "postgresql://u@h/x",
    "postgresql://u:ge%40heim@h:5433,i:5434/x?application_name=y",
    "postgres://u:@h/x?password=ge%26heim&sslmode=prefer&sslpassword=p",
    "postgresql:///x?host=/tmp&password=geheim",
    "postgresql://",
    "",
)


@pytest.mark.parametrize("dsn", DSNS)
def test_nothing_but_the_password_goes(dsn: str) -> None:
    parts = conninfo_to_dict(dsn)
    assert password(dsn) == (parts.pop("password", None) or None)
    parts.pop("sslpassword", None)
    shorter = without_password(dsn)
    assert conninfo_to_dict(shorter) == parts
    assert without_password(shorter) == shorter


def test_a_process_completes_it_from_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "host=h password=geheim dbname=x")
    assert with_own_password("host=h dbname=x") == "host=h password=geheim dbname=x"
    assert with_own_password("host=other dbname=x") == "host=other dbname=x"
    monkeypatch.delenv(VARIABLE)
    assert with_own_password("host=h dbname=x") == "host=h dbname=x"
