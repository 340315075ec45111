"""What people and monitors see of exports, and which jobs the schedule role plans."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.render import status
from pipeline.config.settings import load
from pipeline.errors import ExportFailedError
from pipeline.exports import extra
from pipeline.exports import preflight as check_exports
from pipeline.exports import render as export_report
from pipeline.exports.export_progress import ScriptProgress
from pipeline.exports.ledger import ExportRange, ExportRun
from pipeline.exports.status import ExportStatus
from pipeline.operate import metrics
from pipeline.operate.status import PipelineStatus
from pipeline.server import schedule

NOW = datetime.now(UTC)
RUN = ExportRun(3, "schedule", "failed", "host (pid 1)", "/logs/3", "no disk", NOW - timedelta(hours=2), NOW, 12.34)
EXPORTS = ExportStatus(
    "*/5 * * * *", "/lake", None, NOW + timedelta(days=2, hours=5), RUN, NOW, 1000, 234, without_state=["public.notes"]
)


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where only the server was installed."""
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name in ("pyspark", "pyarrow") else object())


def shown(exports: ExportStatus, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    status.show_status(PipelineStatus(revision="0003", exports=exports), everything=True)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_status_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [" ".join(words) for words in shown(EXPORTS, capsys)]
    assert any(line.startswith("exports */5 * * * * next run in 2 d ") for line in lines)
    assert "lake seq 1000, 234 seqs behind /lake" in lines
    assert any(re.fullmatch("last run failed run 3 by schedule, 2 h .*ago, 12.3 s", line) for line in lines)
    assert "no disk" in lines
    assert any(line.startswith("no current state public.notes ") for line in lines)


def test_states_that_wait_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    waits = replace(EXPORTS, waiting=2, waiting_since=NOW - timedelta(hours=5), waiting_seq=812)
    lines = [" ".join(words) for words in shown(waits, capsys)]
    line, _ = [line for line in lines if line.startswith("current states 2 large tables without the newest changes ")]
    assert "the oldest for 5 h" in line and "as of seq 812" in " ".join(lines)


def test_exports_that_are_off_look_like_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(ExportStatus("off", "/lake", "PIPELINE_EXPORT_SCHEDULE is off"), capsys)
    assert lines[-1] == ["exports", "off", "PIPELINE_EXPORT_SCHEDULE", "is", "off"]


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    export_report.show_exports([], [])
    assert capsys.readouterr().out == "nothing was exported yet\n"
    ledger = ExportRange(7, 3, 0, 1000, "failed", None, None, 0, "/lake", "host (pid 2)", "no luck", NOW, None, None)
    export_report.show_exports([ledger], [RUN])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:9] == ["7", "1", "to", "1000", "failed", "-", "0", "-", "-"]
    assert lines[1][-3:] == ["3", "no", "luck"]
    assert lines[4][:5] == ["3", "schedule", "failed", "12.3", "s"]
    assert lines[4][-3:] == ["/logs/3", "no", "disk"]


def values(exports: ExportStatus) -> dict[str, float]:
    lines = metrics.render(PipelineStatus(exports=exports)).decode().splitlines()
    return {
        name: float(value) for name, value in (line.split() for line in lines if line.startswith("pipeline_export"))
    }


def test_metrics() -> None:
    assert values(EXPORTS) == {
        "pipeline_export_exported_seq": 1000,
        "pipeline_export_behind_seqs": 234,
        "pipeline_export_last_success_timestamp_seconds": pytest.approx(NOW.timestamp()),
        "pipeline_export_failed": 1,
    }
    assert values(replace(EXPORTS, last_run=replace(RUN, state="done")))["pipeline_export_failed"] == 0
    assert values(ExportStatus("off", "/lake", "off")) == {}


def test_without_the_extra(no_extra: None) -> None:
    with pytest.raises(
        ExportFailedError, match=r"not installed \(pyspark, pyarrow missing\); in a checkout: pip install '\.\[spark\]'"
    ):
        extra.require()
    [finding] = check_exports.run(load())
    assert (finding.level, finding.name, finding.text) == ("ok", "export", "off: the spark extra is not installed")
    assert finding.remedy == "in a checkout: pip install '.[spark]'"


def test_without_the_extra_for_iceberg(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "pyiceberg" else object())
    missing = "the iceberg extra is not installed (pyiceberg missing)"
    extra.require()
    with pytest.raises(ExportFailedError, match=rf"{re.escape(missing)}; in a checkout: pip install '\.\[iceberg\]'"):
        extra.require(("parquet", "iceberg"))
    assert not [finding for finding in check_exports.run(load()) if finding.name == "iceberg"]
    wanted = load(export_formats="parquet,iceberg")
    [finding] = [finding for finding in check_exports.run(wanted) if finding.name == "iceberg"]
    assert (finding.level, finding.text) == ("warning", f"exports will fail: {missing}")
    assert finding.remedy and "PIPELINE_EXPORT_FORMATS" in finding.remedy
    schedule.planned(wanted, lambda: False)
    assert [record.getMessage() for record in caplog.records] == [f"exports will fail: {missing}; {finding.remedy}"]


def jobs(**settings: Any) -> set[str]:
    return {job.id for job in schedule.planned(load(**settings), lambda: False).get_jobs()}


def test_the_schedule_role_plans_an_export() -> None:
    scheduler = schedule.planned(load(), lambda: False)
    scheduler.start(paused=True)
    job = scheduler.get_job("export")
    scheduler.shutdown()
    assert "minute='*/5'" in str(job.trigger)
    assert (job.max_instances, job.coalesce, job.misfire_grace_time) == (1, True, None)


def test_no_export_is_planned_when_they_are_off() -> None:
    assert jobs(export_schedule="off") == {"sample", "publish_new_tables", "end_sessions", "indexes"}


def test_content_is_verified_by_schedule() -> None:
    found = jobs(export_schedule="off", verify_schedule="30 3 * * *")
    assert found == {"sample", "publish_new_tables", "end_sessions", "indexes", "verify"}


def test_no_export_is_planned_without_the_extra(no_extra: None) -> None:
    assert jobs() == {"sample", "publish_new_tables", "end_sessions", "indexes"}


def test_progress_of_a_run() -> None:
    progress = ScriptProgress()
    for event in (
        {"event": "begins", "after_seq": 100, "upto_seq": 300, "ranges": 2},
        {"event": "spark", "application": "local-1"},
        {"event": "progress", "range": 1, "ranges": 2, "after_seq": 100, "upto_seq": 200, "rows": 50, "done": 25},
    ):
        progress.add_event(event)
    assert progress.headline == "exporting seq 101 to 300 in 2 ranges"
    assert (progress.rows, progress.part) == (25, 0.25)
    assert progress.line().startswith("range 1 of 2, 25 rows, ")
    assert progress.line().endswith(" left")
    progress.add_event({"event": "committed", "range": 1, "ranges": 2, "upto_seq": 200, "files": 1, "rows": 50})
    progress.add_event(
        {"event": "progress", "range": 2, "ranges": 2, "after_seq": 200, "upto_seq": 300, "rows": 10, "done": 5}
    )
    assert (progress.rows, progress.part) == (55, 0.75)


def test_an_event_that_is_new_is_shown_as_it_is() -> None:
    progress = ScriptProgress()
    progress.add_event({"event": "folded", "dataset": "public.orders", "rows": 7})
    assert progress.line() == "folded dataset public.orders rows 7"


def test_the_folder_of_a_lake_is_checked(tmp_path: Path) -> None:
    def finding(folder: Path) -> tuple[str, str]:
        found = next(check_exports.run(load(export_dir=folder, export_schedule="off")))
        return found.level, found.text

    assert finding(tmp_path / "new" / "lake")[0] == "ok"
    (tmp_path / "notes.txt").write_text("")
    assert finding(tmp_path) == ("warning", f"{tmp_path}: it holds notes.txt, which does not belong to a lake")
    assert finding(tmp_path / "notes.txt" / "lake")[1].endswith("notes.txt is a file")
    (tmp_path / "manifest.json").write_text("{}")
    assert finding(tmp_path)[0] == "ok"
