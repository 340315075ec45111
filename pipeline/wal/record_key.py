"""Makes record_pk, the text of a row's key. The same rule is also in SQL, in Spark and in tuples.py.

SQL: pipeline/log/sql/key_of_record.sql. Spark: KEY_OF_RECORD in spark/pyspark_sequin_events/selection.py. tuples.py
writes only the key of one short column. tests/fidelity/types/test_keys.py compares all of them for all types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256

from pipeline.wal.messages import Row, Value

LONGEST_KEY = 2_000
"""The most bytes of a key's text that are written as they are.

An entry of a B-tree holds 2,704 bytes (nbtree.h, BTMaxItemSize). A source's key may have that size in binary, and is
longer as text.
"""


def key_writer(key: Sequence[int], as_json: Callable[[int, Value], bytes]) -> Callable[[Row], bytes]:
    """Return a function that makes record_pk of rows with these key columns, in this order.

    With one column, record_pk is the key's text; with several, a JSON array whose items `as_json` writes; without a
    key, it is empty. A text of more than LONGEST_KEY bytes becomes `sha256:` and its digest.
    """
    if len(key) == 1:
        return lambda row: _bounded(value if isinstance(value := row[key[0]], bytes) else b"")
    if key:
        return lambda row: _bounded(b"[" + b",".join([as_json(i, row[i]) for i in key]) + b"]")
    return lambda row: b""


def split_key(record_pk: str, columns: int) -> tuple[str, ...]:
    """Return the texts of the key's columns; an empty tuple if record_pk is a digest.

    A boolean alone is `t`; among several columns it is `true`.
    """
    if record_pk.startswith("sha256:"):
        return ()
    if columns == 1:
        return (record_pk,)
    try:
        values = json.loads(record_pk, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):  # another user has edited the key, or a json value in it is nested too deeply
        return ()
    return tuple(value if isinstance(value, str) else json.dumps(value) for value in values)


def _bounded(text: bytes) -> bytes:
    return text if len(text) <= LONGEST_KEY else b"sha256:" + sha256(text).hexdigest().encode()
