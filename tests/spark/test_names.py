"""Names of folders and which types widen: pure."""

from __future__ import annotations

import pytest

from lake.storage import layout
from pyspark_sequin_events.types import spark_type, wider

NAMES = ("orders", "Orders", "a.b", "a/b", "..", "a b", "a%b", "a=b", "{}", "*", "é", "é" * 31, "=" * 63, "." * 63)


def test_no_two_tables_share_a_folder_and_each_fits_a_file_system() -> None:
    folders = {layout.dataset(schema, name) for schema in NAMES for name in NAMES}
    assert len(folders) == len(NAMES) ** 2
    for folder in folders:
        assert len(folder.encode()) <= 200
        assert not set(folder) & set("/*?[]{}=\\: ")


@pytest.mark.parametrize(
    ("before", "after", "common"),
    [
        ("int", "bigint", "bigint"),
        ("bigint", "int", "bigint"),
        ("float", "double", "double"),
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(12,2)", "decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(14,4)", None),
        ("decimal(10,2)", "string", None),
        ("int", "double", None),
        ("int", "string", None),
        ("timestamp", "timestamp_ntz", None),
        ("array<int>", "array<bigint>", None),
        ("array<int>", "array<int>", "array<int>"),
    ],
)
def test_only_what_every_reader_widens_is_mixed(before: str, after: str, common: str | None) -> None:
    assert wider(before, after) == common


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (12, 2, "decimal(12,2)"),
        (38, 38, "decimal(38,38)"),
        (39, 0, "string"),
        (38, -1, "string"),
        (3, 5, "decimal(5,5)"),
    ],
)
def test_a_numeric_is_a_decimal_as_long_as_spark_has_one(precision: int, scale: int, expected: str) -> None:
    modifier = (precision << 16 | scale & 0x7FF) + 4
    assert spark_type(1700, modifier, "numeric") == expected
