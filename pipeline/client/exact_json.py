"""JSON as programs get it: numbers with every digit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

COLUMNS = ("record", "changes", "exact", "transaction_annotations", "metadata")
"""What of an event or item is JSON."""


def parse_all(columns: list[Any], places: Mapping[int, str]) -> dict[str, str]:
    """Replace the texts at these places by their values. Returns those that are nested too deeply, by their names."""
    unparsed: dict[str, str] = {}
    for place, name in places.items():
        if (text := columns[place]) is not None:
            try:
                columns[place] = json.loads(text, parse_float=Decimal, parse_int=_integer)
            except RecursionError:
                columns[place], unparsed[name] = None, text
    return unparsed


def _integer(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)
