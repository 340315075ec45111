"""Dataclasses as `--json` prints them: LSNs as Postgres prints them and as numbers, times in ISO format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, get_args, get_type_hints

from pipeline.wal import lsn


def as_json(value: Any) -> Any:
    """Return the value for `json.dumps`: a dataclass by its fields, or by the names in its `JSON`.

    A field of type `lsn.Shown` becomes the LSN's text, and a second field, with `_bytes` after its name, has the number
    that the log and metrics use. Values that JSON cannot represent become text.
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = getattr(value, "JSON", [each.name for each in fields(value)])
        return {key: shown for name in names for key, shown in _shown(value, name)}
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _shown(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    found = getattr(value, name)
    if name not in _lsns(value.__class__):
        yield name, as_json(found)
        return
    yield name, None if found is None else lsn.show(found)
    yield f"{name}_bytes", found


@cache
def _lsns(kind: type) -> frozenset[str]:
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(name for name, hint in hints.items() if lsn.Shown in (hint, *get_args(hint)))
