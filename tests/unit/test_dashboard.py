"""The dashboard for Grafana: few panels beside each other, and queries that hold for one server and for several."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "pipeline.json").read_text())
PANELS = DASHBOARD["panels"]
QUERIES = [target["expr"].replace("$__rate_interval", "1m") for panel in PANELS for target in panel["targets"]]
PROMTOOL = shutil.which("promtool")


def test_panels_are_few_and_none_covers_another() -> None:
    assert len(PANELS) <= 16
    places = [cell for panel in PANELS for cell in cells(**panel["gridPos"])]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in PANELS}) == len({panel["title"] for panel in PANELS}) == len(PANELS)


def cells(x: int, y: int, w: int, h: int) -> list[tuple[int, int]]:
    return [(x + right, y + down) for right in range(w) for down in range(h)]


def test_each_panel_asks_the_chosen_data_source() -> None:
    [variable] = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    assert {panel["datasource"]["uid"] for panel in PANELS} == {f"${{{variable['name']}}}"}


def test_queries_join_servers_and_name_metrics_that_exist() -> None:
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for query in QUERIES:
        assert re.match(r"(time\(\) - )?(max|min|count)\b", query), query
        for metric in re.findall(r"\bpipeline_\w+", query):
            assert f"`{metric}`" in metrics, metric


@pytest.mark.skipif(PROMTOOL is None, reason="Debian's prometheus is not installed, so queries are not read")
def test_prometheus_understands_each_query(tmp_path: Path) -> None:
    given = tmp_path / "queries.json"
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    given.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(given)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
