"""What a session of Spark is made with: what an export needs, and what it prefers where nobody says otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

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
}
LOOPBACK: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Defaults of a master that is this process alone."""
WAIT = "spark.pipeline.waitForCores"
"""Our own among Spark's settings: seconds for which no executor may be there."""
WAIT_SECONDS = 300
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")


def given() -> dict[str, str]:
    """The section [spark] of pipeline.toml, as the server passes it on. Raises ExportError."""
    text = os.environ.get(VARIABLE) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ExportError(f"{VARIABLE} is no JSON object; give names and values of Spark's settings, or unset it")
    return {str(name): str(value) for name, value in found.items()}


def before_start(given: Mapping[str, str], master: str | None, folder: Path) -> dict[str, str]:
    """What the JVM is started with: what was given, and `folder` for all that it writes beside results."""
    options = f"{given.get('spark.driver.extraJavaOptions', '')} -Djava.io.tmpdir={folder}".strip()
    settings = {"spark.local.dir": str(folder), **given, "spark.driver.extraJavaOptions": options}
    if master:
        settings["spark.master"] = master
    return settings


def encrypts(settings: Mapping[str, str]) -> bool:
    """Whether what Spark's processes tell each other is encrypted."""
    return any(settings.get(name, "").lower() == "true" for name in _ENCRYPTED)
