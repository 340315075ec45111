"""`pipeline export` where routes send changes to another events table than the default one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import psycopg
import pyarrow.dataset as ds
import pytest

from pipeline.config.settings import load
from pipeline.exports import ledger
from pipeline.server import schedule
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.server import run_command
from tests.fixtures.small_log import add_inserts, small_log


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_events_table_is_exported(database_dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"database_dsn": database_dsn, "spark_master": "local[2]"}
    config = load(data_dir=tmp_path / ".pipeline", database_dsn=database_dsn, spark_master="local[2]")
    inner = config.exports / "public.audit%2Fevents"
    with small_log(database_dsn, 100) as log:
        route(log)
        with caplog.at_level(logging.INFO):
            schedule.export(config, lambda: False)
            schedule.export(config, lambda: False)
        done = [record.__dict__ for record in caplog.records if record.message == "exported"]
        assert [(each["events_table"], each["rows"]) for each in done] == [
            ("public.sequin_events", 100),
            (str(AUDIT), 30),
        ]
        again = run_command("export", "run", folder=tmp_path, **given)
        assert again.stdout.splitlines()[1:] == [
            f"nothing is new: everything up to seq {seq} is in the lake {lake}"
            for seq, lake in ((100, config.exports), (30, inner))
        ]
        state = ("export", "state", "public.audits", "--as-of", "12", "--events-table", str(AUDIT), "--json")
        made = run_command(*state, folder=tmp_path, **given)
        last = json.loads(made.stdout.splitlines()[-1])
        assert (last["event"], last["rows"]) == ("done", 12), made.stderr
        assert ds.dataset(last["output"]).count_rows() == 12
        wrong = run_command(*state[:-2], "public.nothing", folder=tmp_path, **given)
        assert wrong.returncode == 1
        assert wrong.stderr == (
            f"pipeline: there is no events table public.nothing; name one of public.sequin_events, {AUDIT}\n"
        )

        assert isinstance(config.exports, Path) and isinstance(inner, Path)
        (config.exports / "manifest.json").rename(tmp_path / "manifest.json")
        add_inserts(log, 10)
        route(log, first=31, last=40)
        lost = run_command("export", "run", folder=tmp_path, **given)
        assert lost.returncode == 1 and f"{config.exports} is empty, but" in lost.stderr
        assert exported(log) == {str(config.exports): 100, str(inner): 30}
        (tmp_path / "manifest.json").rename(config.exports / "manifest.json")
        (inner / "manifest.json").rename(tmp_path / "manifest.json")
        lost = run_command("export", "run", folder=tmp_path, **given)
        assert lost.returncode == 1 and f"{inner} is empty, but" in lost.stderr
        assert exported(log) == {str(config.exports): 110, str(inner): 30}


def exported(log: psycopg.Connection) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in ledger.exports(log, 20):
        found[each.directory] = max(found.get(each.directory, 0), each.upto_seq)
    return found
