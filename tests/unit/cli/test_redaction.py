"""What others may see of a command line."""

from __future__ import annotations

import pytest

from pipeline.cli import flags

SECRET = "sentinel-30-geheim"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"postgresql://me:{SECRET}@db/shop", "postgresql://me:***@db/shop"),
        (f"postgresql://me:{SECRET}@x@db/shop", "postgresql://me:***@db/shop"),
        (
            f"postgresql://me@db/shop?password={SECRET}&sslmode=require",
            "postgresql://me@db/shop?password=***&sslmode=require",
        ),
        (f"host=db password={SECRET} dbname=x", "host=db password=*** dbname=x"),
        (f"host=db password = '{SECRET} \\' x' dbname=x", "host=db password = *** dbname=x"),
        ("postgresql://me@db:5432/shop", "postgresql://me@db:5432/shop"),
        ("host=db dbname=shop", "host=db dbname=shop"),
    ],
)
def test_passwords_of_dsns(given: str, shown: str) -> None:
    assert flags.without_passwords(given) == shown


def test_a_dsn_wherever_it_stands() -> None:
    given = ["followers", "add", f"postgresql://me:{SECRET}@db/shop", "--dsn", f"host=db x={SECRET}", f"--dsn={SECRET}"]
    shown = flags.without_secrets(given, ["--dsn"])
    assert shown == ["followers", "add", "postgresql://me:***@db/shop", "--dsn", "***", "--dsn=***"]
