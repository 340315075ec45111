"""All settings: flag > environment > pipeline.toml > default, validated once into one frozen object."""

from __future__ import annotations

import difflib
import json
import os
import re
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from pipeline import config_file, cron, durations, routing, sizes
from pipeline.errors import ConfigError
from pipeline.routing import Route

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_DSN_FORMS = "a libpq URI (postgresql://user@host/db) or key=value pairs (host=… dbname=…)"
EXPORT_SCHEDULE = "*/5 * * * *"
_MASTERS = r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|spark://\S+|yarn|k8s://\S+"


class Config(BaseSettings):
    """One field per setting; the environment variable is the field's name in upper case after `PIPELINE_`.

    DSNs are secrets: `repr` and every message leave their value out.
    """

    model_config = SettingsConfigDict(env_prefix="PIPELINE_", frozen=True, extra="forbid", hide_input_in_errors=True)

    source_dsn: SecretStr | None = Field(None, description="database to replicate from; embedded when not set")
    database_dsn: SecretStr | None = Field(None, description="database for the events; embedded when not set")
    source_id: uuid.UUID | None = Field(None, description="source_database_id of the events; made at first start")
    data_dir: Path = Field(Path(".pipeline"), description="embedded Postgres, exports, logs of jobs")
    slot: str = Field("pipeline", pattern=r"^[a-z0-9_]{1,63}$", description="replication slot")
    publication: str = Field("pipeline", pattern=r"^[^\s\"',]{1,54}$", description="publication of the keyed tables")
    tables: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="`schema.table` list, `*` matches anything; empty means all"
    )
    events_table: str = Field("public.sequin_events", description="the default events table")
    routes: Annotated[tuple[Route, ...], NoDecode] = Field(
        (), description="changes that go to other events tables: tables, actions, events_table; the first match decides"
    )
    retention: str = Field(durations.NONE, description="age at which events are dropped: 7d, 12h, 30m, 45s, or none")
    on_poison: Literal["stop", "park"] = Field(
        "stop", description="a change that cannot be written: stop, or park it as a dead letter and go on"
    )
    catchup_threshold: str = Field(
        "1GB", description="WAL that the source is ahead by when more slots are opened: bytes, 64MB, 1GB, or off"
    )
    catchup_interval: float = Field(1.0, ge=0.05, le=60, description="seconds between two looks at the lag")
    catchup_max_slots: int | None = Field(
        None, ge=1, le=64, description="slots that read at once; default one less than the host has cores, at most 4"
    )
    export_dir: Path | None = Field(None, description="the lake: a local or mounted folder; default <data_dir>/exports")
    export_schedule: str = Field(EXPORT_SCHEDULE, description="when to export: cron of five fields in UTC, or off")
    export_timeout: int = Field(3600, ge=1, description="seconds that one export run may take")
    spark_master: str = Field("local[*]", description="where Spark runs: local[N], spark://…, yarn, k8s://…")
    http_host: str = Field("127.0.0.1", min_length=1, description="address of the HTTP API")
    http_port: int = Field(12312, ge=1, le=65535, description="port of the HTTP API")
    http_certificate: Path | None = Field(None, description="PEM file with the certificate chain; HTTPS when set")
    http_key: Path | None = Field(None, description="PEM file with the certificate's key, without a passphrase")
    http_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="pages of these origins (`https://host:port`) may use the API beside its own"
    )
    api_token: SecretStr | None = Field(None, description="bearer token wanted by every endpoint but health")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level to log")
    log_format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else json")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags and file come in through `load`, so only they and the environment are sources."""
        return init_settings, env_settings

    @field_validator("source_dsn", "database_dsn")
    @classmethod
    def _dsn_parses(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        try:
            parts = conninfo_to_dict(value.get_secret_value())
        except ProgrammingError:  # its text may quote the password
            raise ValueError(f"expected {_DSN_FORMS}") from None
        if _splits_wrongly(value.get_secret_value()) or not re.fullmatch(r"[\d, ]*", str(parts.get("port") or "")):
            raise ValueError(
                f"expected {_DSN_FORMS}; in a URI, characters such as @ and / of a password must be "
                "percent-encoded (@ as %40)"
            )
        return value

    @field_validator("slot")
    @classmethod
    def _slot_is_no_part(cls, value: str) -> str:
        if re.search(r"_part_[1-9]\d*$", value):
            raise ValueError(f"{value!r} is a name for a part of a backlog, and would be removed; choose another")
        return value

    @field_validator("tables", mode="before")
    @classmethod
    def _split_tables(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of `schema.table`, where * matches anything")
        return tuple(value)

    @field_validator("tables")
    @classmethod
    def _tables_are_qualified(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            if not re.fullmatch(r"[^.]+\.[^.]+", pattern):
                raise ValueError(f"expected `schema.table`, where * matches anything, not {pattern!r}")
        return value

    @field_validator("events_table")
    @classmethod
    def _events_table_is_one(cls, value: str) -> str:
        return routing.events_table_name(value)

    @field_validator("routes", mode="before")
    @classmethod
    def _parse_routes(cls, value: Any) -> Any:
        return routing.parse(value)

    @field_validator("http_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of `https://host:port`")
        return tuple(value)

    @field_validator("http_origins")
    @classmethod
    def _origins_are_bare(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not re.fullmatch(r"https?://[^\s/?#@*,]+", origin, re.IGNORECASE):
                raise ValueError(f"expected https://host or http://host:port, without a path, not {origin!r}")
        return tuple(origin.lower() for origin in value)

    @field_validator("catchup_threshold", mode="before")
    @classmethod
    def _threshold_may_be_a_number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("catchup_threshold")
    @classmethod
    def _threshold_parses(cls, value: str) -> str:
        value = value.strip()
        value = sizes.OFF if value.lower() == sizes.OFF else value
        sizes.parse(value)
        return value

    @field_validator("catchup_max_slots", "export_dir", "http_certificate", "http_key", "api_token", mode="before")
    @classmethod
    def _blank_is_not_given(cls, value: Any) -> Any:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("retention")
    @classmethod
    def _retention_parses(cls, value: str) -> str:
        value = value.strip().lower() or durations.NONE
        durations.parse(value)
        return value

    @field_validator("export_schedule")
    @classmethod
    def _schedule_parses(cls, value: str) -> str:
        value = value.strip()
        if value.lower() == cron.OFF:
            return cron.OFF
        if value != EXPORT_SCHEDULE:  # the scheduler is not imported for nothing
            cron.parse(value)
        return value

    @field_validator("spark_master")
    @classmethod
    def _master_is_one(cls, value: str) -> str:
        if not re.fullmatch(_MASTERS, value):
            raise ValueError(f"expected local[*], local[4], spark://host:7077, yarn or k8s://…, not {value!r}")
        return value

    @model_validator(mode="after")
    def _public_address_needs_token(self) -> Config:
        if self.http_host not in LOOPBACK and self.api_token is None:
            raise ValueError(
                f"PIPELINE_HTTP_HOST {self.http_host} is reachable from outside this machine: "
                "set PIPELINE_API_TOKEN, or use 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Config:
        if self.http_certificate is None and self.http_key is not None:
            raise ValueError("PIPELINE_HTTP_KEY is set without PIPELINE_HTTP_CERTIFICATE: set both, or neither")
        if self.http_certificate is not None and self.http_key is None:
            raise ValueError("PIPELINE_HTTP_CERTIFICATE is set without PIPELINE_HTTP_KEY: set both, or neither")
        return self

    def with_databases(self, source_dsn: str, database_dsn: str) -> Config:
        """The same settings with both databases named, as the roles need them."""
        return self.model_copy(update={"source_dsn": SecretStr(source_dsn), "database_dsn": SecretStr(database_dsn)})

    @property
    def exports(self) -> Path:
        """The folder of the lake."""
        return (self.export_dir or self.data_dir / "exports").expanduser().absolute()

    @property
    def events_tables(self) -> tuple[str, ...]:
        """Every events table of these settings once, the default one first."""
        return tuple(dict.fromkeys([self.events_table, *(route.events_table for route in self.routes)]))

    @property
    def retention_seconds(self) -> float | None:
        """How long events are kept; None for ever."""
        return durations.parse(self.retention)

    @property
    def catchup_bytes(self) -> int | None:
        """The lag in bytes above which more slots are opened; None: never."""
        return sizes.parse(self.catchup_threshold)

    @property
    def source(self) -> str:
        """libpq connection string of the source. Raises ConfigError while none is resolved."""
        return _resolved("PIPELINE_SOURCE_DSN", self.source_dsn)

    @property
    def database(self) -> str:
        """libpq connection string of the pipeline database. Raises ConfigError while none is resolved."""
        return _resolved("PIPELINE_DATABASE_DSN", self.database_dsn)

    def to_json(self) -> str:
        """All settings with their secrets, for a child process's standard input and nothing else."""
        values = self.model_dump(mode="json", exclude_none=True)
        for name in ("source_dsn", "database_dsn", "api_token"):
            if (secret := getattr(self, name)) is not None:
                values[name] = secret.get_secret_value()
        return json.dumps(values)


def from_json(text: str) -> Config:
    """What `to_json` wrote; the environment plays no part."""
    return Config.model_construct(**Config.__pydantic_validator__.validate_python(json.loads(text)).__dict__)


def load(file: Path | None = None, **flags: Any) -> Config:
    """Settings from flags (None: not given), the environment and `file` (default: pipeline.toml when it is there).

    Raises ConfigError that names each wrong setting and what was expected; values are never quoted from a DSN.
    """
    from_file = config_file.read(file, list(Config.model_fields))
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in from_file.items():
        if f"PIPELINE_{name.upper()}" not in os.environ:
            given.setdefault(name, value)
    try:
        return Config(**given)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(part) for part in error.errors())) from None


def unknown_variables() -> list[str]:
    """PIPELINE_ variables of the environment that are no setting, perhaps for a typing error."""
    known = {f"PIPELINE_{name.upper()}" for name in Config.model_fields}
    return sorted(
        name
        for name in os.environ
        if name.startswith("PIPELINE_") and not name.startswith("PIPELINE_TEST_") and name not in known
    )


def describe(dsn: str) -> str:
    """Where a DSN points, for messages: user, host, port and database, never a password."""
    parts = conninfo_to_dict(dsn)
    shown = {k: str(v) for k in ("host", "hostaddr", "port", "user", "dbname", "service") if (v := parts.get(k))}
    return make_conninfo(**shown) if shown else "libpq's defaults"


def _splits_wrongly(dsn: str) -> bool:
    """Whether libpq would take a part of a URI's password for the host, port or database, and print it."""
    scheme, separator, rest = dsn.partition("://")
    if not separator or "=" in scheme:
        return False
    before_query = rest.partition("?")[0]
    return before_query.count("@") > 1 or "@" in before_query.partition("/")[2]


def _explain(part: Any) -> str:
    message = str(part["msg"]).removeprefix("Value error, ")
    if not part["loc"]:
        return message
    name = str(part["loc"][0])
    if name == "routes":
        return routing.explain(part["loc"], part["type"], message)
    if part["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Config.model_fields, 1, 0.5)
        known = f"did you mean {near[0]}?" if near else f"there are: {', '.join(Config.model_fields)}"
        return f"unknown setting {name!r} in the configuration file; {known}"
    return f"PIPELINE_{name.upper()}: {message[0].lower()}{message[1:]}"


def _resolved(name: str, value: SecretStr | None) -> str:
    if value is None:
        raise ConfigError(f"{name} is not set and no embedded Postgres is running; start `pipeline serve`, or set it")
    return value.get_secret_value()
