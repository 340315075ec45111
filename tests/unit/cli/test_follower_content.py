"""What `followers verify` prints for people."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipeline.followers.operating.follower_content import show_verified
from pipeline.followers.operating.verify import FollowerVerification, VerifiedTable
from pipeline.followers.verifying.comparison import RowDifference
from pipeline.terminal.json_values import as_json

EQUAL = VerifiedTable("public.a", rows=1200, unsettled=1)
DIFFERS = VerifiedTable(
    "public.b",
    "differs",
    rows=3,
    differing=103,
    differences=[RowDifference(("1", "x"), "different", ("note", "n")), RowDifference(("2", "y"), "missing")],
)
REFUSED = VerifiedTable("public.c", "refused", "it is copying")


def verified(*tables: VerifiedTable) -> FollowerVerification:
    differing = sum(table.differing for table in tables)
    started = datetime(2026, 11, 25, tzinfo=UTC)
    rows = sum(table.rows for table in tables)
    return FollowerVerification(not differing, "reports", started, 0x1_0000_0001, 40, rows, differing, 1, list(tables))


def test_tables_then_rows_that_differ_then_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    show_verified(verified(EQUAL, DIFFERS, REFUSED))
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert "equal public.a 1,200 1 row written all the time, so their comparison did not end" in shown
    assert "differs public.b 3 103 rows differ" in shown
    assert "not compared public.c - it is copying" in shown
    assert "1, x different note, n" in shown
    assert "2, y missing" in shown
    assert "and 101 more" in shown
    assert shown[-2:] == [
        "1,203 rows of 2 tables: 103 differences, through 1/1, seq 40",
        "made equal by `pipeline followers resync reports public.b`",
    ]


def test_nothing_compared_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    show_verified(verified(REFUSED))
    assert "nothing was compared" in capsys.readouterr().out


def test_json_has_keys_kinds_and_columns() -> None:
    found = as_json(verified(DIFFERS))
    assert (found["verified_through"], found["verified_through_bytes"], found["seq"]) == ("1/1", 0x1_0000_0001, 40)
    assert found["tables"][0]["differences"][0] == {"key": ["1", "x"], "kind": "different", "columns": ["note", "n"]}
