"""DSNs of followers: none with a secret is taken, and nothing is repeated of one that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.settings import unknown_variables
from pipeline.errors import ConfigError, FollowerRefusedError
from pipeline.followers import connecting

SECRET = "sentinel-30-geheim"
WITH_A_PASSWORD = [
    f"postgresql://me:{SECRET}@db/shop",
    f"postgres://me@db/shop?password={SECRET}",
    f"host=db password={SECRET}",
    f"host=db password='{SECRET} x'",
]
BROKEN = [
    f"postgresql://me:{SECRET}@{SECRET}@db/shop",
    f"postgresql://me:{SECRET}/x@db/shop",
    f"host=db password={SECRET} nonsense",
    f"nonsense={SECRET}",
    f"host=db port={SECRET}",
    f"me:{SECRET}@db",
]


@pytest.mark.parametrize("dsn", WITH_A_PASSWORD)
def test_a_password_is_refused_with_the_remedies(dsn: str) -> None:
    with pytest.raises(FollowerRefusedError) as raised:
        connecting.parse_dsn(dsn)
    said = str(raised.value)
    assert said.startswith("--dsn has a password, which would be stored with it; leave it out, and have it in ")
    for remedy in ("PGPASSFILE", "passfile=", "service file", "PIPELINE_FOLLOWER_PASSWORD_<NAME>"):
        assert remedy in said
    assert SECRET not in said


def test_the_key_of_a_certificate_has_a_passphrase() -> None:
    with pytest.raises(FollowerRefusedError, match="--dsn has sslpassword, a secret, which would be stored") as raised:
        connecting.parse_dsn(f"host=db sslkey=/k sslpassword={SECRET}")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("dsn", BROKEN)
def test_nothing_is_repeated_of_one_that_is_broken(dsn: str) -> None:
    with pytest.raises(FollowerRefusedError, match="--dsn: expected a libpq URI") as raised:
        connecting.parse_dsn(dsn)
    assert SECRET not in str(raised.value)


def test_what_is_no_secret_is_kept() -> None:
    given = "host=db port=5433 user=sync dbname=shop sslmode=verify-full sslrootcert=/ca passfile=/p"
    assert connecting.parse_dsn(given) == dict(each.split("=") for each in given.split())


def test_what_a_dsn_leaves_open_is_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("PGPORT", "7")
    found = connecting.with_defaults({"dbname": "shop"})
    assert (found["host"], found["port"], found["dbname"]) == ("elsewhere", "7", "shop")
    assert connecting.with_defaults({"service": "reports"}) == {"service": "reports"}


def test_a_password_may_be_in_a_file_which_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, file = "PIPELINE_FOLLOWER_PASSWORD_REPORTS_2", tmp_path / "password"
    monkeypatch.setenv(f"{variable}_FILE", str(file))
    assert unknown_variables() == {}
    with pytest.raises(ConfigError, match=f"{variable}_FILE: .* cannot be read"):
        connecting.connect("reports-2", "host=/nowhere", program="test")
    for secret in (SECRET, "another"):
        file.write_text(f"{secret}\n")
        assert connecting.with_password("reports-2", "host=db") == f"host=db password={secret}"
    assert connecting.with_password("reports", "host=db") == "host=db"
    monkeypatch.setenv(variable, SECRET)
    with pytest.raises(ConfigError, match="are both set") as raised:
        connecting.connect("reports-2", "host=/nowhere", program="test")
    assert SECRET not in str(raised.value)
