"""Each alert fires by its cause and by nothing else, also with two servers, and the docs say what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
PROMTOOL = shutil.which("promtool")
Series = Mapping[str, float | None]
HEALTHY: Series = {
    'pipeline_build_info{server="a",version="1"}': 1,
    'pipeline_build_info{server="b",version="1"}': 1,
    'pipeline_up{server="a",database="pipeline"}': 1,
    'pipeline_up{server="b",database="pipeline"}': 1,
    'pipeline_up{server="a",database="source"}': 1,
    'pipeline_up{server="b",database="source"}': 1,
    'pipeline_ready{server="a"}': 1,
    'pipeline_ready{server="b"}': 0,
    'pipeline_lag_seconds{server="a"}': 0,
    'pipeline_lag_seconds{server="a",stage="exported"}': 9000,
    'pipeline_slot_retained_bytes{server="a"}': 1e9,
    'pipeline_slot_safe_wal_bytes{server="a"}': 9e9,
    'pipeline_dead_letters{server="a",state="parked"}': 0,
    'pipeline_dead_letters{server="a",state="discarded"}': 5,
    'pipeline_tables_not_captured{server="a"}': 0,
    'pipeline_tables_rewritten{server="a"}': 0,
    'pipeline_consumer_oldest_pending_seconds{server="a",consumer="mail"}': 3,
    'pipeline_consumer_dead{server="a",consumer="mail"}': 0,
    'pipeline_follower_state{server="a",follower="reports",state="stopped"}': 0,
    'pipeline_slot_failover_ready{server="a"}': 1,
}
"""Two servers, of which `b` stands by. None: the series is missing."""
AWAY: Series = {
    **{name: None for name in HEALTHY if "_up{" not in name and "_build" not in name},
    'pipeline_up{server="a",database="source"}': None,
    'pipeline_up{server="b",database="source"}': None,
    'pipeline_up{server="a",database="pipeline"}': 0,
    'pipeline_up{server="b",database="pipeline"}': 0,
    'pipeline_ready{server="a"}': 0,
}
CASES: dict[str, tuple[Series, str | None, Mapping[str, str]]] = {
    "nothing is wrong": ({}, None, {}),
    "one of two servers does not answer": (
        {name: None for name in HEALTHY if 'server="b"' in name},
        None,
        {},
    ),
    "no server answers": (dict.fromkeys(HEALTHY), "ServerDown", {}),
    "the pipeline database is away": (AWAY, "DatabaseDown", {}),
    "the source is away": (
        {
            'pipeline_up{server="a",database="source"}': 0,
            'pipeline_up{server="b",database="source"}': 0,
            'pipeline_ready{server="a"}': 0,
            'pipeline_lag_seconds{server="a"}': 900,
            'pipeline_schedule_failed{server="a",schedule="publish_new_tables"}': 1,
        },
        "SourceDown",
        {},
    ),
    "no server replicates": (
        {'pipeline_ready{server="a"}': 0, 'pipeline_lag_seconds{server="a"}': 900},
        "NotReplicating",
        {},
    ),
    "the log is late": ({'pipeline_lag_seconds{server="a"}': 301}, "Late", {}),
    "the slot keeps much WAL": (
        {'pipeline_slot_retained_bytes{server="a"}': 51e9, 'pipeline_slot_safe_wal_bytes{server="a"}': None},
        "SlotKeepsWal",
        {},
    ),
    "the slot is soon lost": (
        {'pipeline_slot_retained_bytes{server="a"}': 8e9, 'pipeline_slot_safe_wal_bytes{server="a"}': 2e9},
        "SlotKeepsWal",
        {},
    ),
    "a change is parked": ({'pipeline_dead_letters{server="a",state="parked"}': 1}, "ChangesParked", {}),
    "a table is not captured": ({'pipeline_tables_not_captured{server="a"}': 1}, "TablesIncomplete", {}),
    "a table was rewritten": ({'pipeline_tables_rewritten{server="a"}': 1}, "TablesIncomplete", {}),
    "an export failed": (
        {'pipeline_schedule_failed{server="a",schedule="export"}': 1},
        "ScheduleFailed",
        {"schedule": "export"},
    ),
    "a consumer is late": (
        {'pipeline_consumer_oldest_pending_seconds{server="a",consumer="mail"}': 901},
        "ConsumerStuck",
        {"consumer": "mail"},
    ),
    "items are dead": (
        {'pipeline_consumer_dead{server="a",consumer="mail"}': 1},
        "ConsumerStuck",
        {"consumer": "mail"},
    ),
    "a follower has stopped": (
        {'pipeline_follower_state{server="a",follower="reports",state="stopped"}': 1},
        "FollowerStopped",
        {"follower": "reports"},
    ),
    "a standby has no slot": ({'pipeline_slot_failover_ready{server="a"}': 0}, "NoFailover", {}),
}


def rules() -> list[Any]:
    return list(YAML(typ="safe").load(RULES.read_text())["groups"][0]["rules"])


def promtool_test(name: str, changed: Series, fired: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a test of all rules for promtool: after twenty minutes of these values, only one alert fires."""
    series = {key: value for key, value in {**HEALTHY, **changed}.items() if value is not None}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": f"{value:f}x20"} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname, {", ".join(labels) or "none"}) (ALERTS{{alertstate="firing"}})',
                "eval_time": "20m",
                "exp_samples": [
                    {
                        "labels": "{"
                        + ", ".join(f'{k}="{v}"' for k, v in {"alertname": fired, **labels}.items())
                        + "}",
                        "value": 1,
                    }
                ]
                if fired
                else [],
            }
        ],
    }


@pytest.mark.skipif(PROMTOOL is None, reason="Debian's prometheus is not installed, so alerts are not tried")
def test_each_alert_fires_by_its_cause_alone(tmp_path: Path) -> None:
    tests = [
        promtool_test(name, changed, fired and f"Pipeline{fired}", labels)
        for name, (changed, fired, labels) in CASES.items()
    ]
    given = tmp_path / "alerts.json"
    given.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(given)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_a_section_and_metrics_that_exist() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) <= 12
    assert {f"Pipeline{fired}" for _, fired, _ in CASES.values() if fired} == set(names)
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    assert re.findall(r"^## (\w+)$", runbook, re.MULTILINE) == names
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        for metric in re.findall(r"\bpipeline_\w+", rule["expr"]):
            assert f"`{metric}`" in metrics, metric
