"""Makes a Spark schema of columns. This is not in `types`, because tasks of an export do not import Spark's types."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from pyspark_sequin_events.types import arrow_type


def spark_schema(columns: Mapping[str, str]) -> StructType:
    """Return names and types as a Spark schema, in which every column may be null."""
    fields = [
        StructField(name, from_arrow_type(arrow_type(spark), prefer_timestamp_ntz=True))
        for name, spark in columns.items()
    ]
    return StructType(fields)
