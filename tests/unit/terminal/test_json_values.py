"""What scripts read of `--json`: the text to a byte, for each sort of value that a dataclass holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pipeline.capture.catchup.plan import BacklogPart
from pipeline.capture.schema_history.rewrites import RewrittenTable
from pipeline.capture.source.slots import Slot
from pipeline.log.dead_letters import DeadLetter
from pipeline.log.tables import KnownTable
from pipeline.operate.known_sources import KnownSource
from pipeline.operate.lag.model import LagLimit, LagReport, LagStage
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.operate.routes import RoutesVersion, RoutingReport
from pipeline.operate.status import PipelineProgress, PipelineStatus
from pipeline.terminal.json_values import as_json

AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
ISO = '"2026-03-04T05:06:07.000089+00:00"'
LSN = 0x2_0000_00AB


@dataclass(frozen=True)
class Odd:
    value: Any


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (2**60, "1152921504606846976"),
        (0.5, "0.5"),
        ("1/2", '"1/2"'),
        (AT, ISO),
        (Path("/lake"), '"/lake"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ((1, [Odd(2)]), '[1, [{"value": 2}]]'),
        ({"b": Odd(None), "a": {}}, '{"b": {"value": null}, "a": {}}'),
    ],
)
def test_every_sort_of_value(value: Any, shown: str) -> None:
    assert json.dumps(as_json(Odd(value))) == f'{{"value": {shown}}}'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            BacklogPart(1, LSN, LSN + 5, LSN + 3, reached=True),
            '{"worker": 1, "from_lsn": "2/AB", "from_lsn_bytes": 8589934763, "position": "2/AE", '
            '"position_bytes": 8589934766, "until_lsn": "2/B0", "until_lsn_bytes": 8589934768, "left_bytes": 2, '
            '"reached": true}',
        ),
        (
            SlotLag("s", True, LSN, 7),
            '{"name": "s", "active": true, "confirmed_lsn": "2/AB", "confirmed_lsn_bytes": 8589934763, "lag_bytes": 7}',
        ),
        (
            SlotLag("s", True, 0, None),
            '{"name": "s", "active": true, "confirmed_lsn": "0/0", "confirmed_lsn_bytes": 0, "lag_bytes": null}',
        ),
        (
            RewrittenTable("public.a", 1, [1], ["x"], ["type"], None, AT),
            f'{{"table": "public.a", "columns": ["x"], "kinds": ["type"], "from_lsn": null, '
            f'"from_lsn_bytes": null, "found_at": {ISO}, '
            '"remedy": "run `pipeline backfill start public.a --differences`; '
            'or write each row once, then run `pipeline sources rewrites --settle public.a`"}',
        ),
        (
            KnownSource("id", 2, "db", "7", 1, "s", ["p"], LSN, AT),
            '{"id": "id", "epoch": 2, "database": "db", "cluster": "7", "timeline": 1, "slot": "s", '
            f'"publications": ["p"], "position": "2/AB", "position_bytes": 8589934763, "since": {ISO}, "gaps": []}}',
        ),
        (
            Slot("s", "pgoutput", "db", False, False, None, None, LSN, None, "lost", 5),
            '{"name": "s", "plugin": "pgoutput", "database": "db", "two_phase": false, "temporary": false, '
            '"active_pid": null, "holder": null, "restart_lsn": "2/AB", "restart_lsn_bytes": 8589934763, '
            '"confirmed_lsn": null, "confirmed_lsn_bytes": null, '
            '"wal_status": "lost", "retained_bytes": 5, "safe_bytes": null, "inactive_since": null, "failover": null}',
        ),
        (
            DeadLetter(1, "parked", 1, LSN, 3, "a.b", "insert", "k", "p.e", 9, None, "c", "23505", 2, AT, AT),
            '{"id": 1, "state": "parked", "source_epoch": 1, "commit_lsn": "2/AB", '
            '"commit_lsn_bytes": 8589934763, "commit_idx": 3, "table": "a.b", '
            '"action": "insert", "record_pk": "k", "events_table": "p.e", "seq": 9, "retried_seq": null, '
            f'"cause": "c", "sqlstate": "23505", "attempts": 2, "parked_at": {ISO}, "updated_at": {ISO}}}',
        ),
        (
            LagReport(
                [LagLimit("worker", "slow", "more"), LagLimit("export", "x")],
                LSN,
                [LagStage("staged", 1, 2, None, 3, 0.0)],
            ),
            '{"written_lsn": "2/AB", '
            '"written_lsn_bytes": 8589934763, '
            '"stages": [{"stage": "staged", "lsn": "0/1", "lsn_bytes": 1, "behind_bytes": 2, '
            '"behind_seconds": null, "own_bytes": 3, "own_seconds": 0.0, "reader": null}], "limited_by": {"part": '
            '"worker", "text": "slow", "remedy": "more"}, "also": [{"part": "export", "text": "x", "remedy": ""}]}',
        ),
        (
            RoutingReport(
                [RoutesVersion(1, 1, LSN, "p.e", [], {"p.e": 1}, AT)], [KnownTable("p.e", 5, 4, None, True)], False
            ),
            '{"in_force": HELD, "pending": false, "tables": [{"name": "p.e", "last_seq": 5, "events": 4, '
            '"updated_at": null, "present": true}], "history": [HELD]}'.replace(
                "HELD",
                '{"id": 1, "epoch": 1, "after_lsn": "2/AB", '
                '"after_lsn_bytes": 8589934763, "events_table": "p.e", "routes": [], '
                f'"first_seqs": {{"p.e": 1}}, "since": {ISO}}}',
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_commands_print(value: Any, shown: str) -> None:
    assert json.dumps(as_json(value)) == shown


def test_a_status_has_its_counters_beside_the_rest() -> None:
    shown = PipelineStatus(
        source_lsn=LSN, progress=PipelineProgress(staged_lsn=LSN, shuffled_at=AT, read_at=AT)
    ).to_json()
    assert (shown["source_lsn"], shown["staged_lsn"], shown["shuffled_lsn"]) == ("2/AB", "2/AB", None)
    assert (shown["source_lsn_bytes"], shown["staged_lsn_bytes"], shown["shuffled_lsn_bytes"]) == (LSN, LSN, None)
    names = list(shown)
    assert names[names.index("reasons") + 1 :][:5] == [
        *("staged_lsn", "staged_lsn_bytes", "open_lsn", "open_lsn_bytes", "open_changes")
    ]
    assert names[0] == "replicating"
    assert not {"progress", "read_at"} & set(shown)
