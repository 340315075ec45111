"""Tests before a run that executors can write to the lake, and that the driver can publish their files."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from lake.errors import UnfitTargetError
from lake.running.cluster import run_tasks
from lake.running.cores import cores, is_local
from lake.storage import layout, object_store
from lake.storage.where import LakePath, ObjectPath

_FILE = "file"
_REMEDY = "let both users be in the folder's group, give the folder mode 2775 and both of them umask 002"
_ANOTHER = "mount the same folder on all hosts, or name another PIPELINE_EXPORT_DIR"


@dataclass(frozen=True)
class _WriteProbe:
    """The result of a test on a host. `error`: the reason why it cannot write."""

    path: str
    who: str
    error: str | None


def require_shared(spark: SparkSession, folder: LakePath) -> None:
    """Raise UnfitTargetError, which names host and user, if executors cannot write to the lake.

    Does nothing with a local master.
    """
    if is_local(spark):
        return
    if isinstance(folder, ObjectPath):
        _require_objects(spark, folder)
        return
    staging = folder.absolute() / layout.STAGING
    here = staging / f"probe-{uuid.uuid4().hex}"
    probes = run_tasks(spark, _try, [str(here / str(number)) for number in range(cores(spark))], lambda _: None)
    try:
        for probe in probes:
            _move_probe(probe, folder)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _require_objects(spark: SparkSession, folder: ObjectPath) -> None:
    names = [f"{layout.STAGING}/probe-{uuid.uuid4().hex}" for _ in range(cores(spark))]
    probes = run_tasks(spark, partial(_try_object, folder), names, lambda _: None)
    object_store.remove_all(folder / probe.path for probe in probes if not probe.error)
    if failed := next((probe for probe in probes if probe.error), None):
        raise UnfitTargetError(f"{folder}: executors on {failed.who} cannot write there: {failed.error}")


def _try_object(folder: ObjectPath, name: str) -> _WriteProbe:
    """Write an object as a task does. Runs on executors."""
    try:
        object_store.put(folder / name, b"0")
        error = None
    except UnfitTargetError as found:
        error = str(found)
    return _WriteProbe(name, f"{platform.node()} as user {_user()}", error)


def _try(path: str) -> _WriteProbe:
    """Make a folder with a file as a task does. Runs on executors."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / _FILE).write_bytes(b"0")
        error = None
    except OSError as found:
        error = found.strerror or str(found)
    return _WriteProbe(path, f"{platform.node()} as user {_user()}", error)


def _move_probe(probe: _WriteProbe, folder: Path) -> None:
    if probe.error:
        raise UnfitTargetError(f"{folder}: executors on {probe.who} cannot write there: {probe.error}; {_REMEDY}")
    path = Path(probe.path)
    try:
        os.replace(path / _FILE, path.parent / f"{path.name}-moved")
        shutil.rmtree(path)
    except FileNotFoundError:
        raise UnfitTargetError(
            f"{folder}: executors on {probe.who} have another folder of that path; {_ANOTHER}"
        ) from None
    except OSError as error:
        raise UnfitTargetError(
            f"{folder}: what executors on {probe.who} write there cannot be moved by user {_user()} on "
            f"{platform.node()}: {error.strerror}; {_REMEDY}"
        ) from error


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
