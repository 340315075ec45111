"""The preflight's part on a Spark cluster: its master's answer and version, and what its hosts reach."""

from __future__ import annotations

import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import metadata
from ipaddress import ip_address

from psycopg.conninfo import conninfo_to_dict

from pipeline.config import spark
from pipeline.config.settings import Config, describe
from pipeline.findings import CheckFinding, CheckFindings

_NAME = "spark"
_UI_PORT = "spark.master.ui.port"
_SECONDS = 3.0
_VERSION = re.compile(r'class="version"[^>]*>\s*(\d+\.\d+)[\w.-]*')


def run(config: Config) -> CheckFindings:
    """Return the findings `spark`; none if Spark runs on this machine. Errors stop exports, but not the server."""
    if spark.is_local(config.spark_master):
        return
    yield from _master(config)
    dsn = config.database_dsn
    yield from _reach(config, None if dsn is None else dsn.get_secret_value())


def _master(config: Config) -> CheckFindings:
    masters = spark.standalone_masters(config.spark_master)
    if config.spark_master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        text = "PIPELINE_SPARK_MASTER is yarn, but neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"
        yield CheckFinding("warning", _NAME, text, "set one of them to the folder of yarn-site.xml")
    for host, port in masters:
        if (reason := _refuses(host, port)) is not None:
            text = f"the Spark master {host}:{port} does not answer: {reason}"
            yield CheckFinding("warning", _NAME, text, "start it, or correct PIPELINE_SPARK_MASTER")
        else:
            yield _version(host, int(config.spark.get(_UI_PORT, "8080")))


def _refuses(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def _version(host: str, port: int) -> CheckFinding:
    """Return the finding of the master's version, which only the page of its UI shows."""
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    ours = metadata.version("pyspark")
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as page:
            found = _VERSION.search(page.read(100_000).decode(errors="replace"))
    except (urllib.error.URLError, OSError, ValueError):
        found = None
    if found is None:
        text = f"the Spark master answers; its version is unknown, since {address} does not show it"
        return CheckFinding(
            "ok", _NAME, text, f"PySpark here is {ours}; {_UI_PORT} in [spark] names the port of its UI"
        )
    if found[1] != ".".join(ours.split(".")[:2]):
        text = f"the Spark master is of version {found[1]}, PySpark here of {ours}: these versions do not work together"
        return CheckFinding("warning", _NAME, text, f"install pyspark=={found[1]}.* here, or upgrade the cluster")
    return CheckFinding("ok", _NAME, f"the Spark master answers; its version is {found[1]}, like PySpark here")


def _reach(config: Config, dsn: str | None) -> CheckFindings:
    parts: Mapping[str, object] = conninfo_to_dict(dsn or "")
    remedy = "name it by an address that every host of the cluster reaches, or use PIPELINE_SPARK_MASTER=local[*]"
    if dsn is None:
        yield CheckFinding("warning", _NAME, "executors cannot reach the embedded pipeline database", remedy)
    elif is_here_alone(dsn):
        yield CheckFinding(
            "warning", _NAME, f"only this machine reaches the pipeline database at {describe(dsn)}", remedy
        )
    if (parts.get("password") or os.environ.get("PGPASSWORD")) and not spark.encrypts(config.spark):
        yield CheckFinding(
            "ok",
            _NAME,
            "executors get no password, since Spark would send it in clear",
            "give them one by PGPASSFILE or a service file on each host, or encrypt Spark's RPC in [spark]",
        )


def is_here_alone(dsn: str) -> bool:
    """Return True if a DSN means something else on each machine: a socket's folder, or a loopback address."""
    parts = conninfo_to_dict(dsn)
    if parts.get("service") and not (parts.get("host") or parts.get("hostaddr")):
        return False
    hosts = str(parts.get("hostaddr") or parts.get("host") or os.environ.get("PGHOST", "")).split(",")
    return all(_is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
