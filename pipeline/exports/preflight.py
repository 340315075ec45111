"""The preflight's part on exports: Java and the folder. A server runs without them, so nothing here is an error."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.config.bucket import LakeBucket
from pipeline.config.settings import Config
from pipeline.errors import ExportFailedError
from pipeline.exports import extra, java, reach, spark_cluster
from pipeline.exports.status import why_off
from pipeline.findings import CheckFinding, CheckFindings

_OTHER_FOLDER = "set another PIPELINE_EXPORT_DIR"


def run(config: Config) -> CheckFindings:
    """Return the findings `export`, `java`, `export user`, `iceberg` (a missing package), `spark` (of a cluster)."""
    if extra.missing():
        yield CheckFinding("ok", "export", "off: the spark extra is not installed", extra.REMEDY)
        return
    yield _folder(config)
    try:
        found = java.find(os.environ)
    except ExportFailedError as error:
        text, _, remedy = str(error).partition("; ")
        yield CheckFinding("warning", "java", text, remedy)
    else:
        yield CheckFinding(
            "ok", "java", f"Java {found.version} from {found.origin} ({found.executable}) will run Spark"
        )
    for name, reason, remedy in extra.problems(config.export_formats):
        yield CheckFinding("warning", name, f"exports will fail: {reason}", remedy)
    yield from spark_cluster.run(config)


def _folder(config: Config) -> CheckFinding:
    path = config.exports
    if isinstance(path, LakeBucket):
        if refused := reach.why_unfit(path):
            text, _, remedy = refused.partition("; ")
            return CheckFinding("warning", "export", text, remedy)
        return _ready(config)
    try:
        wrong = _unfit(path)
    except OSError as error:
        wrong = error.strerror or str(error)
    if wrong:
        return CheckFinding("warning", "export", f"{path}: {wrong}", f"fix that, or {_OTHER_FOLDER}")
    return _ready(config)


def _ready(config: Config) -> CheckFinding:
    off = why_off(config)
    when = f"only by `pipeline export run` ({off})" if off else f"at {config.export_schedule} (UTC)"
    return CheckFinding("ok", "export", f"to {config.exports} {when}, Spark at {config.spark_master}")


def _unfit(path: Path) -> str | None:
    """Return why the folder cannot be a lake."""
    if path.is_dir() and not (path / "manifest.json").exists():
        others = sorted(entry.name for entry in path.iterdir() if entry.name != ".staging")
        if others:
            return f"it holds {others[0]}, which does not belong to a lake"
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if not nearest.is_dir():
        return f"{nearest} is a file"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to"
