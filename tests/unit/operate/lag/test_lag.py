"""What the facts of both databases are explained by, and when an LSN was written."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.cli.render import status as lag_report
from pipeline.exports.ledger import ExportRun
from pipeline.exports.status import ExportStatus
from pipeline.log.readers import LaggingReader
from pipeline.operate.lag import causes, lsn_times
from pipeline.operate.lag import stages as lag_stages
from pipeline.operate.lag.facts import AtSource, LagFacts, OldestTransaction, RoleSession, StoredPositions
from pipeline.operate.lag.lag_metrics import collect_lag
from pipeline.operate.lag.lsn_times import NearestSamples
from pipeline.operate.lag.model import LATE_SECONDS, PARTS, LagLimit, LagReport, LagStage
from pipeline.operate.lag.reader_causes import HELD_BYTES
from pipeline.operate.status import PipelineStatus
from pipeline.terminal.json_values import as_json

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = LATE_SECONDS + 1
FACTS = LagFacts(
    AtSource(1000, NOW, restart=0, confirmed=0, sender=7, sent=1000, received=1000, staged=1000, sampled=True),
    StoredPositions(uuid.UUID(int=1), 0, staged=1000, complete=1000, watermark=1000),
)
BUSY = {"load_age": 1.0, "sending": 1.0}


def stages(**late: float) -> list[LagStage]:
    """The four of the log, and others that are named: this many seconds late by themselves."""
    found: list[LagStage] = []
    behind = 0.0
    for name in ("decoded", "received", "staged", "shuffled", *(name for name in late if name.endswith("ed"))):
        if not any(stage.stage == name for stage in found):
            behind += late.get(name, 0.0)
            found.append(LagStage(name, 0, 1, behind, 1, late.get(name, 0.0), "c"))
    return found


def limits(facts: LagFacts, **late: float) -> list[LagLimit]:
    return causes.limits(facts, stages(**late))


def first(facts: LagFacts, **late: float) -> tuple[str, str]:
    found = limits(facts, **late)[0]
    assert found.remedy
    return found.part, found.text


def at(**values: Any) -> LagFacts:
    return replace(FACTS, at=replace(FACTS.at, **values))


def moved(**values: Any) -> LagFacts:
    return replace(FACTS, moved=replace(FACTS.moved, **values))


def reader(**values: Any) -> LaggingReader:
    known: dict[str, Any] = {"kind": "consumer", "name": "c", "active": False, "paused": False, "remedy": "", "seqs": 5}
    return LaggingReader(
        **{**known, "commit_lsn": 500, "committed_at": NOW - timedelta(seconds=LATE), "epoch": 0, **values}
    )


def test_nothing_is_late() -> None:
    assert [limit.part for limit in limits(FACTS)] == ["nothing"]
    assert [limit.part for limit in limits(FACTS, decoded=LATE_SECONDS / 2)] == ["nothing"]


@pytest.mark.parametrize(
    ("facts", "late", "part", "text"),
    [
        (FACTS, "decoded", "decoding", "or is decoding a large transaction"),
        (replace(FACTS, spilled=5_000_000), "decoded", "decoding", "spilled 5.0 MB"),
        (at(wait_event="WaitForStandbyConfirmation"), "decoded", "decoding", "synchronized_standby_slots"),
        (at(wait_event="WalSenderWriteData"), "decoded", "network", "pid 7"),
        (moved(starved=1.0, blocked=0.0, **BUSY), "decoded", "network", "has not received"),
        (FACTS, "received", "network", "has not received"),
        (FACTS, "staged", "staging", "received wait to be stored"),
        (moved(starved=0.1, blocked=0.8, **BUSY), "decoded", "staging", "80%"),
        (moved(starved=0.1, blocked=0.0, **BUSY), "decoded", "worker", "so its CPU is the limit"),
        (moved(starved=0.1, blocked=0.0, load_age=60.0, sending=1.0), "decoded", "decoding", ""),
        (at(sender=None), "staged", "worker", "nothing reads the slot"),
        (moved(watermark=900), "shuffled", "shuffle", "staged faster than they are moved"),
    ],
)
def test_each_part(facts: LagFacts, late: str, part: str, text: str) -> None:
    found = first(facts, **{late: LATE})
    assert found[0] == part and text in found[1]


def test_wal_that_is_passed_over_is_not_on_its_way() -> None:
    assert first(FACTS, decoded=LATE, received=3 * LATE)[0] == "decoding"


def test_without_the_right_to_see_walsenders() -> None:
    found = causes.limits(FACTS, stages(staged=LATE)[2:])
    assert found[0].part == "staging"
    assert found[0].text.startswith("decoding, network or staging: ") and "pg_read_all_stats" in found[0].remedy


@pytest.mark.parametrize(
    ("seconds", "written", "watermark", "staged", "shuffled", "part"),
    [
        (8.0, 1500, 1000, None, None, "nothing"),  # an idle worker stores every 10 s how far it is
        (1.0, 1500, 1000, 1.0, 0.0, "nothing"),
        (20.0, 1500, 1000, 20.0, 0.0, "staging"),
        (8.0, 2_000_000, 1000, 8.0, 0.0, "staging"),
        (8.0, 1500, 900, None, 9.0, "shuffle"),
    ],
)
def test_an_idle_worker_whose_walsender_is_hidden_is_not_late(
    seconds: float, written: int, watermark: int, staged: float | None, shuffled: float | None, part: str
) -> None:
    hidden = replace(FACTS.at, written=written, sent=None, received=None, staged=None, sampled=False)
    facts = replace(moved(watermark=watermark), at=hidden)
    found = {
        1000: NearestSamples(1000, 1000, NOW - timedelta(seconds=seconds), written, NOW - timedelta(seconds=seconds))
    }
    found[900] = NearestSamples(900, 900, NOW - timedelta(seconds=9), 1000, NOW - timedelta(seconds=9))
    made = list(lag_stages.log_stages(replace(facts, around=found), lag_stages.positions(hidden, facts.moved)))
    assert [(each.stage, each.own_seconds) for each in made] == [("staged", staged), ("shuffled", shuffled)]
    assert causes.limits(facts, made)[0].part == part


def test_a_role_that_does_not_run_is_named_though_nothing_is_late_yet() -> None:
    facts = replace(FACTS, reasons=("replication is not running", "shuffle: it cannot"))
    assert [(limit.part, limit.text) for limit in limits(facts)] == [
        ("worker", "replication is not running"),
        ("shuffle", "shuffle: it cannot"),
    ]


@pytest.mark.parametrize("starts", [False, True])
def test_a_server_is_to_be_started_only_if_none_runs(starts: bool) -> None:
    facts = replace(FACTS, reasons=("replication has never run",), starts=starts)
    for limit in (limits(facts)[0], causes.missing_source(["replication has never run"], starts=starts)):
        assert limit.text == "replication has never run"
        assert ("start `pipeline serve`" in (limit.remedy or "")) is not starts


def test_of_the_way_into_the_log_the_part_that_costs_most_comes_first() -> None:
    facts = moved(watermark=900)
    assert [limit.part for limit in limits(facts, decoded=LATE, shuffled=2 * LATE)] == ["shuffle", "decoding"]
    assert [limit.part for limit in limits(facts, decoded=2 * LATE, shuffled=LATE)] == ["decoding", "shuffle"]


def test_a_session_that_waits_for_a_lock() -> None:
    session = RoleSession("shuffle", 3, 0.0, 99, "psql", 75.0)
    facts = replace(moved(watermark=900), sessions={"shuffle": session})
    part, text = first(facts, shuffled=LATE)
    assert part == "shuffle" and "pid 99 (psql) holds, whose transaction is 1 min 15 s old" in text


def test_readers_come_after_the_log() -> None:
    facts = replace(moved(watermark=900), readers=[reader(), reader(name="d", paused=True, active=None)])
    found = limits(facts, shuffled=LATE, consumed=LATE)
    assert [limit.part for limit in found] == ["shuffle", "consumer"]
    assert found[1].text.endswith("5 seqs is 5.0 s old; no client reads it; behind, too: 1 other reader")


def test_of_readers_that_are_not_late_the_paused_one_is_named() -> None:
    facts = replace(FACTS, readers=[reader(), reader(name="d", paused=True)])
    assert limits(facts, consumed=0.1)[0].remedy == "`pipeline consumers resume d`"


@pytest.mark.parametrize(("schedule", "late"), [("*/5 * * * *", 601.0), ("0 3 * * *", 3 * 86400.0)])
def test_exports_are_late_after_two_times_without_one(schedule: str, late: float) -> None:
    facts = replace(FACTS, exports=ExportStatus(schedule, "/lake"))
    assert first(facts, exported=late)[0] == "export"
    assert limits(facts, exported=late / 3)[0].part == "nothing"


def test_a_failed_export_is_named_with_its_reason() -> None:
    run = ExportRun(1, "schedule", "failed", "me", None, "no Java", NOW, NOW, 1.0)
    facts = replace(FACTS, exports=ExportStatus("*/5 * * * *", "/lake", last_run=run))
    assert first(facts, exported=1.0) == (
        "export",
        "exports: the first event that the lake lacks is 1.0 s old; no Java",
    )


@pytest.mark.parametrize(("began", "part"), [(-60, "transaction"), (-10, "nothing")])
def test_wal_is_held_by_a_transaction_that_was_open_when_it_was_written(began: int, part: str) -> None:
    holder = OldestTransaction(
        9, None, "psql", "ann", "shop", "idle in transaction", NOW + timedelta(seconds=began), -began
    )
    around = NearestSamples(HELD_BYTES, HELD_BYTES, NOW - timedelta(seconds=30), 3 * HELD_BYTES, NOW)
    source = replace(FACTS.at, restart=0, confirmed=2 * HELD_BYTES, written=3 * HELD_BYTES)
    found = limits(replace(FACTS, at=source, holder=holder, around={HELD_BYTES: around}))[0]
    assert found.part == part
    if part == "transaction":
        assert "pid 9 (psql, ann in shop, idle in transaction) has been in a transaction for 1 min" in found.text
        assert "32.0 MB" in found.text


def seconds_ago(asked: int, around: NearestSamples | None, *, sampled: bool = True) -> float | None:
    written = lsn_times.written_at(around, 1000, NOW, sampled=sampled)
    return None if written is None else (NOW - written).total_seconds()


def test_between_two_looks_time_passes_with_bytes() -> None:
    around = NearestSamples(150, 100, NOW - timedelta(seconds=20), 200, NOW - timedelta(seconds=10))
    assert seconds_ago(150, around) == 15
    assert seconds_ago(100, replace(around, asked=100)) == 20


def test_after_the_last_look() -> None:
    around = NearestSamples(100, 100, NOW - timedelta(seconds=5))
    assert seconds_ago(100, around) == 5
    idle = replace(around, below_at=NOW - timedelta(hours=1))
    assert seconds_ago(100, idle) == 2, "an idle source is not late: a sample each second would have shown more"
    assert seconds_ago(100, idle, sampled=False) == 3600, "no sample: it may have been any time since"


def test_before_the_first_look_it_is_at_least_so_long_ago() -> None:
    assert seconds_ago(100, NearestSamples(100, None, None, 200, NOW - timedelta(seconds=7))) == 7
    assert seconds_ago(100, NearestSamples(100)) is None
    assert seconds_ago(100, None) is None


def test_as_metrics_and_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    lag = LagReport(limits(FACTS, decoded=LATE), 1000, stages(decoded=LATE))
    families = {family.name: family for family in collect_lag(lag, 9, 8.0)}
    size, seconds, limited = (families[f"pipeline_lag_{name}"].samples for name in ("bytes", "seconds", "limited_by"))
    assert [(sample.labels, sample.value) for sample in size[:2]] == [({}, 9), ({"stage": "decoded"}, 1)]
    assert seconds[1].value == LATE
    by_stage = families["pipeline_stage_lag_seconds"].samples
    assert [(sample.labels, sample.value) for sample in by_stage][:1] == [({"stage": "decoded"}, LATE)]
    assert len(by_stage) == len(families["pipeline_stage_lag_bytes"].samples) == 4
    assert {sample.labels["part"]: sample.value for sample in limited} == {
        part: float(part == "decoding") for part in PARTS
    }
    lag_report.show_status(PipelineStatus(revision="1", lag=lag), everything=True)
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("limited by   decoding: the walsender (pid 7) is behind")]
    shown = shown[next(place for place, line in enumerate(shown) if line.startswith("stage ")) :]
    assert shown[0].split() == ["stage", "position", "behind", "lag", "behind", "here", "lag", "here"]
    assert shown[2].split() == ["decoded", "0/0", "1", "B", "5.0", "s", "1", "B", "5.0", "s"]
    assert as_json(lag)["limited_by"]["part"] == "decoding"
