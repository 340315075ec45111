"""`pipeline retention`, the dry run, and what `pipeline status` says, as people and scripts see them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fixtures.aging_log import KEEP, PARTITION, aging_log
from tests.fixtures.server import run_command

OLD = 1.1 * KEEP


def test_a_dry_run_changes_nothing_and_a_run_says_what_went(database_dsn: str, tmp_path: Path):
    settings = {"database_dsn": database_dsn, "source_dsn": database_dsn, "retention": f"{KEEP}s"}
    with aging_log(database_dsn) as log:
        log.add(3 * PARTITION + 10, OLD)
        log.connection.execute("insert into pipeline.consumers (name, kind, position) values ('slow', 'cursor', 250)")
        planned = json.loads(run_command("retention", "--dry-run", "--json", folder=tmp_path, **settings).stdout)
        assert len(planned["droppable"]) == 2
        assert planned["dropped"] is None
        assert planned["held_by"][0]["name"] == "slow"
        assert log.kept() == (1, log.head)
        done = run_command("retention", folder=tmp_path, **settings)
        assert done.returncode == 0, done.stderr
        assert "2 partitions, 0 rows of other partitions dropped" in done.stdout
        assert 'consumer "slow" is at 250; ' in done.stdout
        assert log.kept() == (201, log.head - 200)
    shown = json.loads(run_command("status", "--json", folder=tmp_path, **settings).stdout)
    assert shown["retention"]["held_by"][0]["position"] == 250


def test_without_the_setting_the_command_says_how_to_set_it(database_dsn: str, tmp_path: Path):
    done = run_command("retention", folder=tmp_path, database_dsn=database_dsn, source_dsn=database_dsn)
    assert done.returncode == 2
    assert done.stderr == (
        "pipeline: PIPELINE_RETENTION is none: nothing is ever dropped; set it, for instance to 7d\n"
    )
