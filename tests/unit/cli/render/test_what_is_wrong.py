"""The order of `pipeline status`: warnings, what failed, what is incomplete, then six lines, and all by `--all`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipeline.capture.source.captured_tables import CaptureGap
from pipeline.cli.render import status
from pipeline.consumers.status import ConsumerStatus
from pipeline.exports.ledger import ExportRun
from pipeline.exports.status import ExportStatus
from pipeline.log.tables import KnownTable
from pipeline.operate.lag.model import LagLimit, LagReport
from pipeline.operate.status import PipelineProgress, PipelineStatus
from pipeline.postgres.role_locks import RoleState
from pipeline.wal.lsn import Lsn

NOW = datetime.now(UTC)
ROLES = [
    RoleState(name, "db1:7", 100 + place, "running", None, NOW, True)
    for place, name in enumerate(("replication", "schedule", "shuffle"))
]
HEALTHY = PipelineStatus(
    revision="1",
    database="shop",
    slot="pipeline",
    source_lsn=Lsn(9000),
    retained_bytes=1_200_000,
    lag_bytes=0,
    lag_seconds=0.0,
    progress=PipelineProgress(events=1234, last_seq=1234, events_per_second=12.0, changes_per_second=3.4),
    roles=ROLES,
    lag=LagReport([LagLimit("nothing", "nothing: the log is up to date")]),
)
SIX = [
    "source       database shop, slot pipeline holds back 1.2 MB of WAL",
    "events       1,234 events in the log, newest seq 1234",
    "lag          none, the log is 0 B behind the source",
    "rates        12 events/s, 3 changes/s staged",
    "limited by   nothing: the log is up to date",
    "roles        3 of 3 run on db1:7",
]
CONSUMER = ConsumerStatus(
    1,
    "mail",
    "queue",
    [],
    [],
    "active",
    None,
    None,
    False,
    30.0,
    5,
    None,
    None,
    7,
    None,
    None,
    NOW,
    NOW,
    3,
    0,
    0,
    4.0,
    3,
)


def shown(now: PipelineStatus, capsys: pytest.CaptureFixture[str], *, everything: bool = False) -> list[str]:
    status.show_status(now, everything=everything)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_healthy_status_is_six_lines_and_where_the_rest_is(capsys: pytest.CaptureFixture[str]) -> None:
    expected = ["replicating", "", *SIX, "", "`pipeline status --all` shows the rest"]
    assert shown(replace(HEALTHY, consumers=[CONSUMER]), capsys) == expected


def test_warnings_failures_and_what_is_incomplete_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    run = ExportRun(3, "command", "failed", "host (pid 1)", None, "no disk", NOW, NOW, 12.3)
    lines = shown(
        replace(
            HEALTHY,
            warnings=["user app is a superuser; take that away"],
            slot_marked=False,
            roles=[*ROLES, RoleState("grpc", "db1:7", 110, "waiting", "port 50051 is taken", NOW, True)],
            failed_schedules={"verify": "the source does not answer"},
            exports=ExportStatus("*/5 * * * *", "/lake", last_run=run),
            dead_letters={"parked": 2},
            events_tables=[KnownTable("public.gone", 7, 7, NOW, False)],
            consumers=[CONSUMER, replace(CONSUMER, name="search", state="paused"), replace(CONSUMER, name="d", dead=2)],
            not_captured={"public.notes": "no key"},
            gaps=[CaptureGap("public.old", "rows", None, Lsn(8000), None, NOW)],
        ),
        capsys,
    )
    found = [line for line in lines if line]
    assert found[-7:] == [
        *SIX[:-1],
        "roles        3 of 4 run on db1:7; grpc is waiting",
        "`pipeline status --all` shows the rest",
    ]
    words = [line.split()[0] for line in found[:-7]]
    assert words == [
        "replicating", "warning:", "warning:", "role", "grpc", "failed", "verify", "last", "no", "dead", "events",
        "public.gone", "consumer", "search", "d", "not", "public.notes", "not", "public.old",
    ]  # fmt: skip
    assert found[2].startswith("warning: slot pipeline has no mark of this server")


def test_an_export_that_failed_on_schedule_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    run = ExportRun(3, "schedule", "failed", "host (pid 1)", None, "no disk", NOW, NOW, 12.3)
    exports = ExportStatus("*/5 * * * *", "/lake", last_run=run)
    lines = shown(replace(HEALTHY, exports=exports, failed_schedules={"export": "no disk"}), capsys)
    assert " ".join(lines).count("no disk") == 1


def test_all_shows_what_works_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(replace(HEALTHY, consumers=[CONSUMER]), capsys, everything=True)
    assert found[2:8] == SIX
    assert [line for line in found if line.startswith("mail ")]
    assert [line for line in found if line.startswith("shuffle ") and "running" in line]
    assert "`pipeline status --all` shows the rest" not in found


def test_a_slot_that_does_not_exist_has_no_mark_either(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(replace(HEALTHY, source_version="15", retained_bytes=None, slot_marked=False), capsys)
    assert lines[2] == "source       database shop, slot pipeline does not exist"


def test_a_source_that_cannot_be_read_leaves_the_slot_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(replace(HEALTHY, retained_bytes=None), capsys)
    assert lines[2] == "source       database shop, slot pipeline is not known, because the source could not be read"
