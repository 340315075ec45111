"""Settings of a Spark session: those that an export needs, and defaults that a user may replace."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from lake.errors import ExportError

VARIABLE = "PIPELINE_SPARK"
ORDERS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Required settings: with other values, the files would differ."""
DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.cores.max": "4",
    "spark.scheduler.mode": "FAIR",
    "spark.executorEnv.PYTHONSAFEPATH": "1",  # no worker imports from the folder where spark-submit was run
}
LOOPBACK: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Defaults for a master that runs in this process alone."""
WAIT = "spark.pipeline.waitForCores"
"""The name of our setting among Spark's: the most seconds to wait for an executor."""
WAIT_SECONDS = 300
SECRET = re.compile(r"(?i)secret|password|token|access[._]?key")
"""A pattern for settings whose values Spark hides: Spark's default pattern, and the names that AWS uses."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")


def read_settings() -> dict[str, str]:
    """Read the section [spark] of pipeline.toml, which the server passes on. Raises ExportError."""
    text = os.environ.get(VARIABLE) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ExportError(f"{VARIABLE} is no JSON object; give names and values of Spark's settings, or unset it")
    return {str(name): str(value) for name, value in found.items()}


def umask_setting() -> dict[str, str]:
    """Return the setting by which files that Spark writes get the permissions of this process's umask."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {"spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}"}


def encrypts(settings: Mapping[str, str]) -> bool:
    """Return True if the messages between Spark's processes are encrypted."""
    return any(settings.get(name, "").lower() == "true" for name in _ENCRYPTED)


def store_credentials() -> dict[str, str]:
    """Return settings that pass the keys of the object store to executors, if the cluster encrypts its messages.

    A further setting tells Spark the names of the settings whose values it must hide.
    """
    found = {f"spark.executorEnv.{name}": os.environ[name] for name in _CREDENTIALS if os.environ.get(name)}
    return {**found, "spark.redaction.regex": SECRET.pattern} if found else {}
