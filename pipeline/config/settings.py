"""All settings: flag > environment > pipeline.toml > default, validated once into one frozen object."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Container
from pathlib import Path
from typing import Any, Literal, get_args

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pipeline.config import cron, durations, follower_passwords, secret_files, sizes
from pipeline.config import file as config_file
from pipeline.config import routes as routing
from pipeline.config import wires as wire_names
from pipeline.config.bucket import LakeAt, LakeBucket
from pipeline.config.export_settings import ExportSettings
from pipeline.config.values import (
    Accepted,
    Amount,
    Dsn,
    Duration,
    EventsTableName,
    MaxSlots,
    OptionalId,
    OptionalPath,
    OptionalSecret,
    Origins,
    PortOrOff,
    Publication,
    Retention,
    Routes,
    Schedule,
    Slot,
    TablePatterns,
    Threshold,
    Wires,
)
from pipeline.errors import ConfigError

_PREFIX = "PIPELINE_"
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class Config(ExportSettings):
    """One field per setting; the environment variable is the field's name in upper case after `PIPELINE_`.

    DSNs are secrets: `repr` and every message leave their value out.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    source_dsn: Dsn = Field(None, description="database to replicate from; embedded when not set")
    source_read_dsn: Dsn = Field(
        None, description="the source with a role that only reads rows of tables; default source_dsn"
    )
    database_dsn: Dsn = Field(None, description="database for the events; embedded when not set")
    source_id: OptionalId = Field(
        None, description="UUID in the column source_database_id of events; created at first start"
    )
    data_dir: Path = Field(Path(".pipeline"), description="folder of the embedded Postgres, exports and logs of jobs")
    slot: Slot = Field("pipeline", description="replication slot")
    publication: Publication = Field("pipeline", description="publication of the tables with a key; created if missing")
    tables: TablePatterns = Field(
        (), description="source tables to capture: `schema.table` list, `*` matches anything; empty: all"
    )
    events_table: EventsTableName = Field("public.sequin_events", description="the default events table")
    routes: Routes = Field(
        (),
        description="JSON list: tables, actions and events_table of each route; the first that matches is used",
    )
    retention: Retention = Field(
        durations.NONE, description="age at which events are dropped: 7d, 12h, 30m, 45s, or none"
    )
    on_poison: Literal["stop", "park"] = Field(
        "stop", description="a change that cannot be written: stop, or park it as a dead letter and continue"
    )
    small_batches: Literal["at_once", "staged"] = Field(
        "at_once", description="how small transactions are written: at_once, or staged first like large ones"
    )
    adopt_threshold: Threshold = Field(
        "64MB", description="size from which a backlog of WAL is written as partitions of the log: bytes, 64MB, or off"
    )
    catchup_threshold: Threshold = Field(
        "1GB", description="size from which a backlog of WAL is read by more slots: bytes, 64MB, 1GB, or off"
    )
    catchup_interval: float = Field(1.0, ge=0.05, le=60, description="seconds between two checks of the backlog")
    catchup_max_slots: MaxSlots = Field(
        None, description="the most slots that read a backlog at once; default: one fewer than cores, at most 4"
    )
    snapshot: Literal["initial", "never"] = Field(
        "initial", description="initial: read the existing rows of a table when its capture begins; or never"
    )
    snapshot_tables: TablePatterns = Field(
        (), description="tables whose existing rows are read: `schema.table` list, `*` matches anything; empty: all"
    )
    snapshot_workers: int = Field(2, ge=1, le=16, description="processes that read existing rows at once")
    snapshot_max_rows: int = Field(0, ge=0, description="the most existing rows that are read a second; 0: no limit")
    verify_schedule: Schedule = Field(
        cron.OFF, description="when the log is compared with the rows of the source: cron in UTC, or off"
    )
    http_host: str = Field("127.0.0.1", min_length=1, description="address of the HTTP API")
    http_port: int = Field(12312, ge=1, le=65535, description="port of the HTTP API")
    grpc_port: PortOrOff = Field("50051", description="port of the gRPC server, at the same address; or off")
    http_certificate: OptionalPath = Field(None, description="PEM file with the certificate chain; HTTPS when set")
    http_key: OptionalPath = Field(None, description="PEM file with the certificate's key, without a passphrase")
    http_origins: Origins = Field(
        (), description="origins (`https://host:port`) of web pages that may use the API, in addition to the server's"
    )
    api_token: OptionalSecret = Field(None, description="bearer token that every endpoint but health requires")
    read_token: OptionalSecret = Field(None, description="bearer token for requests that only read, and for metrics")
    wires: Wires = Field((), description="other systems whose clients are served: pgdeltastream, walstream, sequin")
    open_wires: Wires = Field((), description="those of `wires` whose clients need no api_token")
    sessions_max: int = Field(4, ge=1, description="the most sessions of pgdeltastream at once, each with a slot")
    sessions_idle: Duration = Field(
        "1h", description="a session ends after this time without a stream or a snapshot request: 7d, 12h, 30m, 45s"
    )
    sessions_wal: Amount = Field(
        "10GB", description="a session ends when the source keeps more WAL for it than this: bytes, 64MB, 1GB"
    )
    accept: Accepted = Field((), description="errors of `pipeline check`, by name, in spite of which `serve` starts")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level to log: debug, info, warning or error"
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto", description="text, json or auto: text on a terminal, else json"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read settings only from the environment and from what `load` passes: flags and the file."""
        return init_settings, env_settings

    @model_validator(mode="after")
    def _public_address_needs_token(self) -> Config:
        if self.http_host not in LOOPBACK and self.api_token is None:
            raise ValueError(
                f"PIPELINE_HTTP_HOST {self.http_host} is reachable from outside this machine: "
                "set PIPELINE_API_TOKEN, or use 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _home_is_known(self) -> Config:
        try:
            self.exports  # noqa: B018 (it may begin with ~)
        except RuntimeError:
            raise ValueError(f"PIPELINE_EXPORT_DIR {self.export_dir}: HOME is not set; write the whole path") from None
        return self

    @model_validator(mode="after")
    def _read_token_is_another_token(self) -> Config:
        if self.read_token is not None and self.api_token is None:
            raise ValueError("PIPELINE_READ_TOKEN is set without PIPELINE_API_TOKEN: set both, or only the latter")
        if self.read_token is not None and self.read_token == self.api_token:
            raise ValueError("PIPELINE_READ_TOKEN is equal to PIPELINE_API_TOKEN: choose another one")
        return self

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Config:
        if self.http_certificate is None and self.http_key is not None:
            raise ValueError("PIPELINE_HTTP_KEY is set without PIPELINE_HTTP_CERTIFICATE: set both, or neither")
        if self.http_certificate is not None and self.http_key is None:
            raise ValueError("PIPELINE_HTTP_CERTIFICATE is set without PIPELINE_HTTP_KEY: set both, or neither")
        return self

    @model_validator(mode="after")
    def _open_wires_are_served(self) -> Config:
        if (wrong := wire_names.unserved(self.open_wires, self.wires)) is not None:
            raise ValueError(wrong)
        return self

    def with_databases(self, source_dsn: str, database_dsn: str) -> Config:
        """Return these settings with the DSNs of both databases, which roles need, also if they are embedded."""
        return self.model_copy(update={"source_dsn": SecretStr(source_dsn), "database_dsn": SecretStr(database_dsn)})

    @property
    def exports(self) -> LakeAt:
        """The address of the lake: an absolute path, or a bucket."""
        if isinstance(self.export_dir, LakeBucket):
            return self.export_dir
        return (self.export_dir or self.data_dir / "exports").expanduser().absolute()

    @property
    def events_tables(self) -> tuple[str, ...]:
        """Every events table of these settings once, the default one first."""
        return tuple(dict.fromkeys([self.events_table, *(route.events_table for route in self.routes)]))

    @property
    def retention_seconds(self) -> float | None:
        """Seconds for which events are kept; None: forever."""
        return durations.parse(self.retention)

    @property
    def catchup_bytes(self) -> int | None:
        """The lag in bytes above which more slots are opened; None: never."""
        return sizes.parse(self.catchup_threshold)

    @property
    def adopt_bytes(self) -> int | None:
        """The lag in bytes above which a backlog becomes partitions; None: never."""
        return sizes.parse(self.adopt_threshold)

    @property
    def sessions_idle_seconds(self) -> float:
        """Seconds for which a session may have no stream and no snapshot request."""
        return durations.seconds(self.sessions_idle)

    @property
    def sessions_wal_bytes(self) -> int:
        """The most bytes of WAL that the source may keep for a session."""
        return sizes.amount(self.sessions_wal)

    @property
    def source(self) -> str:
        """libpq connection string of the source. Raises ConfigError if it is not set.

        With several hosts it asks for the primary: a standby must not be read instead.
        """
        return _of_primary(_resolved("PIPELINE_SOURCE_DSN", self.source_dsn))

    @property
    def source_reading(self) -> str:
        """libpq connection string of the role that reads rows at the source. Raises ConfigError as `source` does."""
        return self.source if self.source_read_dsn is None else _of_primary(self.source_read_dsn.get_secret_value())

    @property
    def database(self) -> str:
        """libpq connection string of the pipeline database. Raises ConfigError if it is not set."""
        return _resolved("PIPELINE_DATABASE_DSN", self.database_dsn)

    def to_json(self) -> str:
        """Return all settings with their secrets, for a child process's standard input and nothing else."""
        values = self.model_dump(mode="json", exclude_none=True)
        for name in SECRETS:
            if (secret := getattr(self, name)) is not None:
                values[name] = secret.get_secret_value()
        return json.dumps(values)


SECRETS = tuple(name for name, field in Config.model_fields.items() if SecretStr in get_args(field.annotation))
"""The settings whose values are never shown."""


def variable(setting: str) -> str:
    """Return the environment variable of a setting."""
    return f"{_PREFIX}{setting.upper()}"


def from_json(text: str) -> Config:
    """Return the settings that `to_json` wrote; the environment is not read."""
    return Config.model_construct(**Config.__pydantic_validator__.validate_python(json.loads(text)).__dict__)


def load(file: Path | None = None, **flags: Any) -> Config:
    """Return the settings from flags (None: not given), the environment and `file` (default: pipeline.toml, if any).

    Environment variables may also name files with secrets (`pipeline/config/secret_files.py`).

    Raises ConfigError, whose text names each wrong setting and what was expected, and never quotes a DSN.
    """
    from_file = config_file.read(file, list(Config.model_fields))
    given = {name: value for name, value in flags.items() if value is not None}
    named = {variable(name): name for name in SECRETS if name not in given}
    secrets = {named[each]: value for each, value in secret_files.read(named).items()}
    given |= secrets
    for name, value in from_file.items():
        if variable(name) not in os.environ:
            given.setdefault(name, value)
    try:
        return Config(**given)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(part, secrets) for part in error.errors())) from None


def unknown_variables() -> dict[str, str | None]:
    """Return each PIPELINE_ variable of the environment that is no setting, with the most similar one that is.

    None: no setting has a similar variable.
    """
    known = {variable(name) for name in Config.model_fields}
    known |= {secret_files.naming(variable(name)) for name in SECRETS}
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith(_PREFIX) and not name.startswith("PIPELINE_TEST_") and name not in known
        if not follower_passwords.is_one(name)
    )
    names = {each.removeprefix(_PREFIX): each for each in known}
    near = {name: difflib.get_close_matches(name.removeprefix(_PREFIX), names, 1, 0.5) for name in unknown}
    return {name: names[found[0]] if found else None for name, found in near.items()}


def describe(dsn: str) -> str:
    """Describe the target of a DSN, for messages: user, host, port and database, never a password."""
    parts = conninfo_to_dict(dsn)
    shown = {k: str(v) for k in ("host", "hostaddr", "port", "user", "dbname", "service") if (v := parts.get(k))}
    return make_conninfo(**shown) if shown else "libpq's defaults"


def _explain(part: Any, from_files: Container[str]) -> str:
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
    where = secret_files.naming(variable(name)) if name in from_files else variable(name)
    return f"{where}: {message[0].lower()}{message[1:]}"


def _of_primary(dsn: str) -> str:
    """Return the DSN, which asks for the primary if it names several hosts and does not say which one to use."""
    given = conninfo_to_dict(dsn)
    several = any("," in str(given.get(name, "")) for name in ("host", "hostaddr"))
    if not several or "target_session_attrs" in given or "PGTARGETSESSIONATTRS" in os.environ:
        return dsn
    return make_conninfo(dsn, target_session_attrs="primary")


def _resolved(name: str, value: SecretStr | None) -> str:
    if value is None:
        raise ConfigError(f"{name} is not set and no embedded Postgres is running; start `pipeline serve`, or set it")
    return value.get_secret_value()
