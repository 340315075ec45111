"""One server, which serves this wire, for all tests that leave it as it was: by one process, in one group."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.browsers import required
from tests.fixtures.folder_scope import shared_in_folder
from tests.fixtures.grpc_place import Place, place_of
from tests.fixtures.postgres import Cluster

PACKAGES = Path(__file__).with_name("package.json")


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return shared_in_folder(request, lambda: place_of(cluster, tmp_path_factory.mktemp("walstream"), wires="walstream"))


@pytest.fixture
def place(running: Place) -> Place:
    """The same for every test; whom a test leaves waited for holds the position for a minute."""
    return running


@pytest.fixture
def moving(running: Place) -> Place:
    """A server that waits for no session, so that the position moves."""
    running.let_go()
    return running


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """A folder with what walstream's clients in Node need; it stays for the next run."""
    npm = required("npm")
    folder = Path(sys.prefix) / "walstream-node"
    wanted = PACKAGES.read_bytes()
    if not _is_installed(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "package.json").write_bytes(wanted)
        _install(npm, folder)
    return folder


def _is_installed(folder: Path, wanted: bytes) -> bool:
    """npm writes its lock file when all else is done."""
    asked = folder / "package.json"
    return asked.exists() and asked.read_bytes() == wanted and (folder / "node_modules/.package-lock.json").exists()


def _install(npm: str, folder: Path) -> None:
    command = [npm, "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm has not installed the client's packages within two minutes")
    if done.returncode:
        pytest.skip(f"npm cannot install the client's packages: {done.stderr.strip().splitlines()[:1]}")
