"""record_pk made of the values in a state is what the worker makes when a row is written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lake.errors import UnclearHistoryError
from lake.states.rekeying import key_function
from lake.tables import forms
from lake.tables.columns import NumberedForm
from lake.tables.forms import LakeTableForm, ReplicationPlace
from pipeline.wal.encoding import RowEncoder
from pyspark_sequin_events.types import arrow_type

# name: type oid, type in the lake, the value there, as Postgres prints it
VALUES: dict[str, tuple[int, str, Any, bytes]] = {
    "integer": (23, "int", -7, b"-7"),
    "bigint": (20, "bigint", 2**63 - 1, b"9223372036854775807"),
    "numeric": (1700, "decimal(12,2)", Decimal("1.50"), b"1.50"),
    "unconstrained": (1700, "string", "1e-20", b"1e-20"),
    "boolean": (16, "boolean", True, b"t"),
    "text": (25, "string", 'é"\\\t\x01', 'é"\\\t\x01'.encode()),
    "uuid": (2950, "string", "11111111-0000-0000-0000-000000000000", b"11111111-0000-0000-0000-000000000000"),
    "bytea": (17, "binary", b"\x00\xff", b"\\x00ff"),
    "date": (1082, "date", date(2024, 2, 29), b"2024-02-29"),
    "timestamp": (1114, "timestamp_ntz", datetime(2024, 2, 29, 1, 2, 3), b"2024-02-29 01:02:03"),
    "timestamptz": (1184, "timestamp", datetime(2024, 2, 29, 1, 2, 3, 450000, UTC), b"2024-02-29 01:02:03.45+00"),
    "long": (25, "string", "x" * 3000, b"x" * 3000),
}


def keyed(*names: str, **others: str) -> NumberedForm:
    """A form whose key is these columns."""
    columns = [
        forms.FormColumn(name, at, others.get(name, VALUES[name][1]), VALUES[name][0], -1, VALUES[name][0], None)
        for at, name in enumerate(names, 1)
    ]
    form = LakeTableForm(1, "s", ReplicationPlace(0, 0, 1, 0), 7, 7, "public", "t", tuple(columns), names)
    return NumberedForm(form, {name: at for at, name in enumerate(names)}, tuple(range(len(names))))


def made(form: NumberedForm, exact: list[tuple[str, str]], *values: Any) -> str:
    arrays = [
        pa.array([value], arrow_type(column.type)) for value, column in zip(values, form.form.columns, strict=True)
    ]
    [key] = key_function(form)(pa.array([exact], pa.map_(pa.string(), pa.string())), *arrays).to_pylist()
    return str(key)


def as_written(names: list[str]) -> str:
    encoder = RowEncoder([(name, VALUES[name][0]) for name in names], list(range(len(names))))
    return encoder.key_of([VALUES[name][3] for name in names]).decode()


@pytest.mark.parametrize("name", VALUES)
def test_a_key_of_one_column(name: str) -> None:
    assert made(keyed(name), [], VALUES[name][2]) == as_written([name])


@pytest.mark.parametrize("name", VALUES)
def test_a_key_of_several(name: str) -> None:
    names = ["integer", name] if name != "integer" else ["integer"]
    assert made(keyed(*names), [], *(VALUES[each][2] for each in names)) == as_written(names)


def test_what_its_type_cannot_hold_is_in_exact() -> None:
    assert made(keyed("numeric"), [("c0", "NaN")], None) == "NaN"
    assert made(keyed("integer", "date"), [("c1", "infinity")], 1, None) == '[1,"infinity"]'


def test_a_row_that_lacks_a_value_of_the_key_is_refused() -> None:
    with pytest.raises(
        UnclearHistoryError, match=r"public\.t has rows whose new key \(integer\) is not known; .*backfill start"
    ):
        made(keyed("integer"), [], None)


def test_a_type_whose_text_is_not_known_here_is_refused() -> None:
    with pytest.raises(
        UnclearHistoryError, match=r"a key of type double cannot be computed from values \(text of public\.t\)"
    ):
        key_function(keyed("text", text="double"))
