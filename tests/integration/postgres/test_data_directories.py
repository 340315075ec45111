"""Clusters that tests begin with are copies of one, and yet not the same cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pipeline.postgres import migrations
from tests.fixtures.data_directories import MIGRATED, prepare
from tests.fixtures.postgres import MAJORS, Cluster, bin_dir


@pytest.mark.parametrize("major", MAJORS)
def test_each_has_an_identifier_of_its_own_and_the_checksum_of_it(tmp_path: Path, major: int) -> None:
    if (binaries := bin_dir(major)) is None:
        pytest.skip(f"PostgreSQL {major} is not installed")
    said = []
    for name in ("one", "other"):
        prepare(tmp_path / name, binaries)
        command = [binaries / "pg_controldata", tmp_path / name / "data"]
        said.append(subprocess.run(command, capture_output=True, text=True, check=True))
    assert [each.stderr for each in said] == ["", ""]
    assert not any("WARNING" in each.stdout for each in said)
    one, other = (re.findall(r"system identifier: +(\d+)", each.stdout) for each in said)
    assert len(one) == len(other) == 1
    assert one != other


def test_a_server_is_made_with_a_migrated_database(cluster: Cluster, database_dsn: str) -> None:
    if cluster.server is None:
        pytest.skip("the server is not ours")
    assert cluster.template == MIGRATED
    assert migrations.current(database_dsn) == migrations.head()
