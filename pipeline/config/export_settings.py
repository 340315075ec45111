"""The settings of exports, and of Spark, which runs them."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from pipeline.config import durations
from pipeline.config.values import (
    COMPACTION_SCHEDULE,
    EXPORT_SCHEDULE,
    ICEBERG,
    LATEST_AGE,
    CatalogUri,
    Duration,
    Formats,
    KeepSession,
    LakePath,
    LatestAge,
    Master,
    Schedule,
    SparkSettings,
)


class ExportSettings(BaseSettings):
    """Part of `pipeline.config.settings.Config`."""

    export_dir: LakePath = Field(
        None, description="the lake: a local or mounted folder, or s3://bucket/prefix; default <data_dir>/exports"
    )
    export_schedule: Schedule = Field(EXPORT_SCHEDULE, description="when to export: cron of five fields in UTC, or off")
    export_timeout: int = Field(3600, ge=1, description="seconds that one export run may take")
    export_keep: Duration = Field(
        "24h", description="how long files stay in the lake that newer ones have replaced: 7d, 12h, 30m, 45s"
    )
    export_checkpoints: Duration = Field(
        "7d", description="how long each day's last current state stays, for states as of earlier: 7d, 12h, 30m, 45s"
    )
    export_latest_age: LatestAge = Field(
        None,
        description="how long the current state of a large table may lack a few changes: 0, 15m, 12h; default 24h, or 0"
        " with iceberg",
    )
    export_compaction: Schedule = Field(
        COMPACTION_SCHEDULE, description="when to merge small files of changes: cron of five fields in UTC, or off"
    )
    export_connections: int = Field(
        8, ge=1, le=1000, description="the most tasks of an export that read the log at a time, a connection each"
    )
    export_formats: Formats = Field(
        ("parquet",), description="what the lake can be read as: parquet, or parquet,iceberg"
    )
    export_iceberg_catalog: str = Field("lake", pattern=r"^\w+$", description="name of the catalog of Iceberg tables")
    export_iceberg_uri: CatalogUri = Field("", description="a REST catalog for them; empty: the pipeline database")
    export_keep_session: KeepSession = Field(
        "0", description="how long a Spark session waits for the next export: 0 (not at all), 45s, at most 15m"
    )
    spark_master: Master = Field("local[*]", description="where Spark runs: local[N], spark://…, yarn, k8s://…")
    spark: SparkSettings = Field({}, description="settings of Spark itself, which it gets as they are")

    @property
    def export_keep_seconds(self) -> float:
        """`export_keep` in seconds."""
        return durations.seconds(self.export_keep)

    @property
    def export_checkpoints_seconds(self) -> float:
        """`export_checkpoints` in seconds."""
        return durations.seconds(self.export_checkpoints)

    @property
    def export_latest_age_seconds(self) -> float:
        """`export_latest_age` in seconds, 0 for not at all: as it is with Iceberg tables, which are as of one seq."""
        age = self.export_latest_age or ("0" if ICEBERG in self.export_formats else LATEST_AGE)
        return 0.0 if age == "0" else durations.seconds(age)

    @property
    def export_keep_session_seconds(self) -> float:
        """`export_keep_session` in seconds, 0 for not at all."""
        return 0.0 if self.export_keep_session == "0" else durations.seconds(self.export_keep_session)
