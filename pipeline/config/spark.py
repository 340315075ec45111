"""Checks the settings for Spark: its master, and the section `[spark]` of pipeline.toml, which Spark gets unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_EXAMPLE = '{"spark.executor.memory": "2g"}'
_ADDRESS = r"(\[[^\s\[\],]+\]|[^\s\[\],:/]+):\d{1,5}"
_MASTERS = rf"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|spark://{_ADDRESS}(,{_ADDRESS})*|yarn|k8s://\S+"
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")


def master(value: str) -> str:
    """Return this address of a Spark master unchanged. Raises ValueError if Spark has no such kind of master."""
    if re.fullmatch(_MASTERS, value):
        return value
    if value.startswith("spark://"):
        raise ValueError(
            f"expected a host and a port, spark://host:7077, or several with commas between, not {value!r}"
        )
    raise ValueError(f"expected local[*], local[4], spark://host:7077, yarn or k8s://…, not {value!r}")


def is_local(master: str) -> bool:
    """True if all of Spark runs on this machine, in one process or several."""
    return master.startswith("local")


def standalone_masters(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master of a standalone cluster; an empty list for any other kind of master."""
    if not master.startswith("spark://"):
        return []
    pairs = (each.rpartition(":") for each in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def encrypts(settings: Mapping[str, str]) -> bool:
    """True if these settings encrypt the connections between Spark's processes."""
    return any(settings.get(name, "").lower() == "true" for name in _ENCRYPTED)


def parse(value: Any) -> dict[str, str]:
    """Return Spark's properties from tables of TOML, nested or with dots in their names, or from JSON.

    Raises ValueError.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise ValueError(f"expected JSON such as {_EXAMPLE}") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected the section [spark] in the configuration file, or JSON such as {_EXAMPLE}")
    found = dict(_flat("", value))
    for name in found:
        if not name.startswith("spark."):
            raise ValueError(f"expected names of Spark's settings, which begin with spark., not {name!r}")
    return found


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the full name and the value of each property, since TOML turns names with dots into nested tables."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
        else:
            raise ValueError(f"expected a text or a number for {prefix}{name}")
