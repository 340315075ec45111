"""Every test starts without the settings of the shell it was started from, and on what is quick to start on."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.fixtures.spark import JVM_OPTIONS

_ROOT = Path(__file__).parents[1]

gc.disable()  # until all tests are collected: that leaves little garbage

_worker: int | None = None
"""The process, if it is one of several that run tests."""


@atexit.register
def _end_at_once() -> None:
    """What a worker has collected is not taken apart, which takes seconds; what tests fork ends as it always does."""
    if os.getpid() == _worker and "coverage" not in sys.modules:  # which may store at the end what it has seen
        os._exit(0)


def pytest_configure(config: pytest.Config) -> None:
    global _worker
    if hasattr(config, "workerinput"):
        _worker = os.getpid()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker imports the modules of tests from another one on, and finds compiled what the others began with.

    In one order, all of them at once would compile all that has changed: in a fresh clone, every module.
    """
    if _worker is None:
        return
    given = session.config.workerinput  # type: ignore[attr-defined]
    found = [path for folder in session.config.args for path in sorted((_ROOT / folder).rglob("test_*.py"))]
    first = len(found) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
    for path in found[first:] + found[:first]:
        with suppress(Exception, pytest.skip.Exception):  # when it is collected, pytest says so
            import_module(".".join(path.relative_to(_ROOT).with_suffix("").parts))


pytest_plugins = [
    "tests.fixtures.data_directories",
    "tests.fixtures.postgres",
    "tests.fixtures.server",
    "tests.fixtures.rigs",
    "tests.fixtures.proxies",
    "tests.fixtures.api",
    "tests.fixtures.altering",
    "tests.fixtures.followers",
    "tests.fixtures.following",
    "tests.fixtures.schema_changes",
    "tests.fixtures.served_follower",
    "tests.fixtures.staged",
    "tests.fixtures.catching_up",
    "tests.fixtures.wal2json",
]

for name in [name for name in os.environ if name.startswith("PIPELINE_") and not name.startswith("PIPELINE_TEST_")]:
    del os.environ[name]

# The tests start a thousand processes, which would each compile all modules again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A thousand databases come and go: their files cost half the processor time in memory. What tests keep stays on disk.
_MEMORY, _ROOM = Path("/dev/shm"), 8 * 2**30  # noqa: S108
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# What `make test` has archived; without it JVMs start more slowly.
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_SHARED = f" -XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.is_file() and _ARCHIVE.stat().st_size else ""
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS + _SHARED)

# Hypothesis draws constants of our sources, too: those of the product are enough.
_PRODUCT = str(_ROOT / "pipeline") + os.sep
vars(providers)["is_local_module_file"] = lambda file: file.startswith(_PRODUCT)

# How long an example takes says something of the machine only. In CI hypothesis has its own profile.
if "CI" not in os.environ:
    too_slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=too_slow)
    hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def somebody_serves() -> Iterator[None]:
    """On the port of the settings' default, as where a developer's own server runs: no test may need it free."""
    from pipeline.config.settings import Config

    with ExitStack() as stack:
        with suppress(OSError):  # another process may change it
            stack.enter_context(socket.create_server(("127.0.0.1", Config.model_fields["http_port"].default)))
        yield


_UNIT = _ROOT / "tests" / "unit"
_LONGEST = ("spark", "fidelity", "table kinds", "pgdeltastream", "rpc", "walstream")
"""Groups that take a minute of a processor and more, the longest first."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups that one process runs come first, the longest of them first: the last one would go on alone when all else
    is done. Tests that take milliseconds come last, so that all processes end together. pytest-xdist keeps this order
    with --no-loadscope-reorder, as `make test` runs it.
    """
    for item in items:
        _keep_together(item)
    items.sort(key=_place)
    gc.freeze()  # tests stay to the end: who collects garbage need not look at them again and again
    gc.enable()


def _keep_together(item: pytest.Item) -> None:
    """Let one process run all tests of a module that share what its fixtures make: else each process makes it."""
    made = vars(item).get("_fixtureinfo")
    shared = made and any(each[-1].scope == "module" for each in made.name2fixturedefs.values())
    if shared and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _place(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is None:
        return len(_LONGEST) + 1 + (_UNIT in item.path.parents)
    return _LONGEST.index(group.args[0]) if group.args[0] in _LONGEST else len(_LONGEST)
