"""Parses JSON so that numbers keep every digit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

COLUMNS = ("record", "changes", "exact", "transaction_annotations", "metadata")
"""The columns of an event or item that hold JSON."""


def parse_all(columns: list[Any], names: Mapping[int, str]) -> dict[str, str]:
    """Replace the JSON texts in `columns` by their values. `names`: the column name of each text, by its index.

    A text that is nested too deeply for Python's parser becomes None. Returns such texts by their column name.
    """
    unparsed: dict[str, str] = {}
    for index, name in names.items():
        if (text := columns[index]) is not None:
            try:
                columns[index] = json.loads(text, parse_float=Decimal, parse_int=_integer)
            except RecursionError:
                columns[index], unparsed[name] = None, text
    return unparsed


def _integer(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)
