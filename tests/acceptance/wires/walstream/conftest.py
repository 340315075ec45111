"""One server, which serves this wire, for all tests that leave it as it was: by one process, in one group."""

from __future__ import annotations

import subprocess
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
    """Where nobody is waited for, so that the position moves."""
    running.let_go()
    return running


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what walstream's clients in Node need."""
    npm = required("npm")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_bytes(PACKAGES.read_bytes())
    command = [npm, "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm has not installed the client's packages within two minutes")
    if done.returncode:
        pytest.skip(f"npm cannot install the client's packages: {done.stderr.strip().splitlines()[:1]}")
    return folder
