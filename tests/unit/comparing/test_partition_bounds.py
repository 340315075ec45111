"""What bounds of partitions say of keys: never less than the partition may have."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import sql

from pipeline.capture.schema_history.versions import PublishedColumn
from pipeline.comparing import partition_bounds

ID = PublishedColumn("id", 23, -1, "integer", 23, key=True)
REGION = PublishedColumn("region", 25, -1, "text", 25, key=True)
KEY = (REGION, ID)


def level(strategy: str, bound: str, *columns: str) -> dict[str, Any]:
    return {"strategy": strategy, "columns": list(columns) or None, "bound": bound}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([level("r", "FOR VALUES FROM (1) TO (10)", "id")], [(">=", "1"), ("<=", "10")]),
        ([level("r", "FOR VALUES FROM ('-5') TO (MAXVALUE)", "id")], [(">=", "-5")]),
        ([level("r", "FOR VALUES FROM (1, MINVALUE) TO (1, 'x')", "id", "region")], [(">=", "1"), ("<=", "1")]),
        ([level("l", "FOR VALUES IN ('a''b, (c)', NULL, 'NULL')", "region")], [("=", "a'b, (c)"), ("=", "NULL")]),
        (
            [level("r", "FOR VALUES FROM (1) TO (10)", "id"), level("l", "FOR VALUES IN ('de')", "region")],
            [(">=", "1"), ("<=", "10"), ("=", "de")],
        ),
        ([level("h", "FOR VALUES WITH (modulus 2, remainder 0)", "id")], None),
        ([level("r", "DEFAULT", "id")], None),
        ([level("r", "FOR VALUES FROM ('a') TO ('b')", "region")], None),
        ([level("r", "FOR VALUES FROM (1) TO (10)")], None),
        ([level("r", "FOR VALUES FROM (1) TO (10)", "another")], None),
        (None, None),
    ],
)
def test_bounds(line: list[dict[str, Any]] | None, said: list[tuple[str, str]] | None) -> None:
    found = partition_bounds.parts([line], KEY)
    assert (found and [(each.operator, value) for each in found[0] for value in each.values]) == said


def test_one_partition_without_plain_bounds_means_all_keys() -> None:
    plain = [level("r", "FOR VALUES FROM (1) TO (10)", "id")]
    assert partition_bounds.parts([plain, None], KEY) is None


def test_the_condition_names_types_and_operators() -> None:
    parts = partition_bounds.parts([[level("l", "FOR VALUES IN ('de', 'at')", "region")]], KEY)
    assert parts is not None
    found = partition_bounds.holds(parts, KEY, [sql.Identifier("region"), sql.Identifier("id")]).as_string(None)
    each = "\"region\" operator(pg_catalog.=) '{}'::text"
    assert found == f"((({each.format('de')} or {each.format('at')})))"
