"""What a session of Spark is made with: what an export needs, and what it prefers where nobody says otherwise."""

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
"""Without these the files would be others."""
DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.cores.max": "4",
    "spark.scheduler.mode": "FAIR",
    "spark.executorEnv.PYTHONSAFEPATH": "1",  # no worker imports from the folder where spark-submit was run
}
LOOPBACK: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Defaults of a master that is this process alone."""
WAIT = "spark.pipeline.waitForCores"
"""Our own among Spark's settings: seconds for which no executor may be there."""
WAIT_SECONDS = 300
SECRET = re.compile(r"(?i)secret|password|token|access[._]?key")
"""Settings whose values Spark hides: what it hides by default, and how AWS writes it."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")


def read_settings() -> dict[str, str]:
    """The section [spark] of pipeline.toml, as the server passes it on. Raises ExportError."""
    text = os.environ.get(VARIABLE) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ExportError(f"{VARIABLE} is no JSON object; give names and values of Spark's settings, or unset it")
    return {str(name): str(value) for name, value in found.items()}


def umask_setting() -> dict[str, str]:
    """Files that Spark itself writes are for whom this process's umask leaves them, not for their owner alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {"spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}"}


def encrypts(settings: Mapping[str, str]) -> bool:
    """Whether what Spark's processes tell each other is encrypted."""
    return any(settings.get(name, "").lower() == "true" for name in _ENCRYPTED)


def store_credentials() -> dict[str, str]:
    """For executors of a cluster that encrypts: the keys of an object store that this process has by its environment.

    Spark hides their values, for which it has to know their names.
    """
    found = {f"spark.executorEnv.{name}": os.environ[name] for name in _CREDENTIALS if os.environ.get(name)}
    return {**found, "spark.redaction.regex": SECRET.pattern} if found else {}
