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
    """The settings of exports and of Spark; `pipeline.config.settings.Config` inherits them."""

    export_dir: LakePath = Field(
        None, description="the lake: a local or mounted folder, or s3://bucket/prefix; default <data_dir>/exports"
    )
    export_schedule: Schedule = Field(EXPORT_SCHEDULE, description="when to export: cron of five fields in UTC, or off")
    export_timeout: int = Field(3600, ge=1, description="seconds that one export run may take")
    export_keep: Duration = Field(
        "24h", description="how long replaced files stay in the lake, for queries that read them: 7d, 12h, 30m, 45s"
    )
    export_checkpoints: Duration = Field(
        "7d", description="how long the lake keeps each table's last state of each day: 7d, 12h, 30m, 45s"
    )
    export_latest_age: LatestAge = Field(
        None,
        description="how long the current state of a large table may lack the newest changes: 0, 15m, 12h; default 24h,"
        " or 0 with iceberg",
    )
    export_compaction: Schedule = Field(
        COMPACTION_SCHEDULE, description="when to merge small files of changes: cron of five fields in UTC, or off"
    )
    export_connections: int = Field(
        8, ge=1, le=1000, description="the most connections by which the tasks of an export read the log at a time"
    )
    export_formats: Formats = Field(
        ("parquet",), description="table formats in which the lake can be read: parquet, or parquet,iceberg"
    )
    export_iceberg_catalog: str = Field("lake", pattern=r"^\w+$", description="name of the catalog of Iceberg tables")
    export_iceberg_uri: CatalogUri = Field(
        "", description="REST catalog of Iceberg tables; empty: the pipeline database"
    )
    export_keep_session: KeepSession = Field(
        "0", description="how long a Spark session waits for the next export: 0 (not at all), 45s, at most 15m"
    )
    spark_master: Master = Field("local[*]", description="where Spark runs: local[N], spark://…, yarn, k8s://…")
    spark: SparkSettings = Field(
        {}, description="properties that are passed to Spark unchanged, such as spark.executor.memory"
    )

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
        """`export_latest_age` in seconds; 0: the current state is complete after each export.

        The default with Iceberg tables is 0, because all of them must show the same seq.
        """
        age = self.export_latest_age or ("0" if ICEBERG in self.export_formats else LATEST_AGE)
        return 0.0 if age == "0" else durations.seconds(age)

    @property
    def export_keep_session_seconds(self) -> float:
        """`export_keep_session` in seconds; 0: a Spark session ends with its export."""
        return 0.0 if self.export_keep_session == "0" else durations.seconds(self.export_keep_session)
