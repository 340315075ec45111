"""Checks of setting values, by subject; error texts say what was expected and never quote a DSN."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from pipeline.config import bucket, cron, durations, routes, sizes, spark, wires
from pipeline.config.bucket import LakeBucket
from pipeline.config.routes import Route

OFF = "off"
ICEBERG = "iceberg"
FORMATS = ("parquet", ICEBERG)
"""The table formats in which a lake can be read."""
LATEST_AGE = "24h"
"""The default of `export_latest_age`."""
EXPORT_SCHEDULE = "*/5 * * * *"
COMPACTION_SCHEDULE = "7 * * * *"
_DSN_FORMS = "a libpq URI (postgresql://user@host/db) or key=value pairs (host=… dbname=…)"


def _dsn(value: SecretStr | None) -> SecretStr | None:
    if value is None or not value.get_secret_value().strip():
        return None
    dsn_parts(value.get_secret_value())
    return value


def dsn_parts(dsn: str) -> dict[str, str]:
    """Return the libpq parameters that a DSN has. Raises ValueError, whose text never quotes it."""
    try:
        parts = conninfo_to_dict(dsn)
    except ProgrammingError:  # its text may quote the password
        raise ValueError(f"expected {_DSN_FORMS}") from None
    if _splits_wrongly(dsn) or not re.fullmatch(r"[\d, ]*", str(parts.get("port") or "")):
        raise ValueError(
            f"expected {_DSN_FORMS}; in a URI, characters such as @ and / of a password must be "
            "percent-encoded (@ as %40)"
        )
    return {name: str(part) for name, part in parts.items() if part is not None}


def _splits_wrongly(dsn: str) -> bool:
    """True if libpq would take a part of a URI's password for the host, port or database, and print it."""
    scheme, separator, rest = dsn.partition("://")
    if not separator or "=" in scheme:
        return False
    before_query = rest.partition("?")[0]
    return before_query.count("@") > 1 or "@" in before_query.partition("/")[2]


def _slot(value: str) -> str:
    if re.search(r"_part_[1-9]\d*$", value):
        raise ValueError(
            f"{value!r} is reserved for slots that read a part of a backlog, and would be dropped; choose another"
        )
    return value


def _listed(expected: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a parser of lists, also of comma-separated text from a flag or the environment."""

    def split(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError(f"expected a list of {expected}")
        return tuple(value)

    return split


def _qualified(value: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in value:
        if not re.fullmatch(r"[^.]+\.[^.]+", pattern):
            raise ValueError(f"expected `schema.table`, where * matches anything, not {pattern!r}")
    return value


def _formats(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if name not in FORMATS:
            raise ValueError(f"unknown format {name!r}; the formats are: {', '.join(FORMATS)}")
    if FORMATS[0] not in value:
        raise ValueError(f"expected {FORMATS[0]} in the list, because the other formats use its files")
    return tuple(dict.fromkeys(value))


def _catalog_uri(value: str) -> str:
    if value and not re.fullmatch(r"https?://\S+", value):
        raise ValueError("expected the http:// or https:// address of a REST catalog, or nothing")
    return value


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if not re.fullmatch(r"https?://[^\s/?#@*,]+", origin, re.IGNORECASE):
            raise ValueError(f"expected https://host or http://host:port, without a path, not {origin!r}")
    return tuple(origin.lower() for origin in value)


def _text_of_number(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _threshold(value: str) -> str:
    value = value.strip()
    value = sizes.OFF if value.lower() == sizes.OFF else value
    sizes.parse(value)
    return value


_LONGEST_SESSION = 900.0


def _port(value: str) -> str:
    value = value.strip().lower()
    if value != OFF and not (value.isdecimal() and 1 <= int(value) <= 65535):
        raise ValueError(f"expected a port from 1 to 65535, or {OFF}, not {value!r}")
    return value


def _retention(value: str) -> str:
    value = value.strip().lower() or durations.NONE
    durations.parse(value)
    return value


def _duration(value: str) -> str:
    value = value.strip().lower()
    durations.seconds(value)
    return value


def _short(value: str) -> str:
    value = value.strip().lower()
    if value != "0" and durations.seconds(value) > _LONGEST_SESSION:
        raise ValueError(f"expected 0, or at most 15m, not {value!r}")
    return value


def _age(value: str) -> str:
    value = value.strip().lower()
    if value != "0":
        durations.seconds(value)
    return value


def _amount(value: str) -> str:
    value = value.strip()
    sizes.amount(value)
    return value


def _schedule(value: str) -> str:
    value = value.strip()
    if value.lower() == cron.OFF:
        return cron.OFF
    if value not in (EXPORT_SCHEDULE, COMPACTION_SCHEDULE):  # avoids importing the scheduler for the defaults
        cron.parse(value)
    return value


def _none_when_blank(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


Dsn = Annotated[SecretStr | None, AfterValidator(_dsn)]
Slot = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,63}$"), AfterValidator(_slot)]
Publication = Annotated[str, Field(pattern=r"^[^\s\"',]{1,54}$")]
TablePatterns = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_listed("`schema.table`, where * matches anything")),
    AfterValidator(_qualified),
]
EventsTableName = Annotated[str, AfterValidator(routes.events_table_name)]
Routes = Annotated[tuple[Route, ...], NoDecode, BeforeValidator(routes.parse)]
Retention = Annotated[str, AfterValidator(_retention)]
Threshold = Annotated[str, BeforeValidator(_text_of_number), AfterValidator(_threshold)]
Duration = Annotated[str, AfterValidator(_duration)]
KeepSession = Annotated[str, BeforeValidator(_text_of_number), AfterValidator(_short)]
LatestAge = Annotated[
    Annotated[str, BeforeValidator(_text_of_number), AfterValidator(_age)] | None, BeforeValidator(_none_when_blank)
]
Amount = Annotated[str, BeforeValidator(_text_of_number), AfterValidator(_amount)]
PortOrOff = Annotated[str, BeforeValidator(_text_of_number), AfterValidator(_port)]
MaxSlots = Annotated[Annotated[int, Field(ge=1, le=64)] | None, BeforeValidator(_none_when_blank)]
Schedule = Annotated[str, AfterValidator(_schedule)]
Master = Annotated[str, AfterValidator(spark.master)]
SparkSettings = Annotated[dict[str, str], NoDecode, BeforeValidator(spark.parse)]
LakePath = Annotated[Path | LakeBucket | None, BeforeValidator(_none_when_blank), BeforeValidator(bucket.parse)]
OptionalPath = Annotated[Path | None, BeforeValidator(_none_when_blank)]
OptionalId = Annotated[uuid.UUID | None, BeforeValidator(_none_when_blank)]
OptionalSecret = Annotated[SecretStr | None, BeforeValidator(_none_when_blank)]
Origins = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_listed("`https://host:port`")), AfterValidator(_origins)
]
Wires = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_listed("the names of wires")), AfterValidator(wires.names)
]
Formats = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_listed("the names of formats")), AfterValidator(_formats)
]
CatalogUri = Annotated[str, AfterValidator(_catalog_uri)]
Accepted = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed("the name of a finding"))]
