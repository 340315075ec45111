"""record_pk: the text of a row's key. The same rule stands in SQL, in pipeline/log/sql/key_of_record.sql, and in Spark.

Spark's is KEY_OF_RECORD in spark/pyspark_sequin_events/selection.py. tuples.py writes the key of one short column
itself. tests/fidelity/types/test_keys.py compares all of them over all types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256

from pipeline.wal.messages import Row, Value

LONGEST_KEY = 2_000
"""Bytes of a key's text that are written as they are: an entry of a B-tree holds 2,704 (nbtree.h, BTMaxItemSize), and
a source's own may be of that size in binary, which as text is longer."""


def key_writer(key: Sequence[int], as_json: Callable[[int, Value], bytes]) -> Callable[[Row], bytes]:
    """A function that makes record_pk of rows whose key columns are these, in this order.

    The key's text when it is one column; a JSON array, whose items `as_json` writes, when it is more; empty when there
    is none. For a text of more than LONGEST_KEY bytes, `sha256:` and its digest.
    """
    if len(key) == 1:
        return lambda row: _bounded(value if isinstance(value := row[key[0]], bytes) else b"")
    if key:
        return lambda row: _bounded(b"[" + b",".join([as_json(i, row[i]) for i in key]) + b"]")
    return lambda row: b""


def split_key(record_pk: str, columns: int) -> tuple[str, ...]:
    """The texts of the key's columns; none where record_pk is a digest. A boolean alone is `t`, in several `true`."""
    if record_pk.startswith("sha256:"):
        return ()
    if columns == 1:
        return (record_pk,)
    try:
        found = json.loads(record_pk, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):  # another user has edited it, or a json value in it is nested too deeply
        return ()
    return tuple(value if isinstance(value, str) else json.dumps(value) for value in found)


def _bounded(text: bytes) -> bytes:
    return text if len(text) <= LONGEST_KEY else b"sha256:" + sha256(text).hexdigest().encode()
