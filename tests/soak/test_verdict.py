"""The verdict of a run is right about samples with and without growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.generated import GeneratedPart
from tests.soak import page, samples, verdict
from tests.soak.samples import ProcessSample, Sample, TableSample

MINUTES = 60.0


def run(memory: float = 0.0, table: float = 0.0, files: float = 0.0, log: float = 0.0) -> list[Sample]:
    """Return samples of a run with so much growth by its end; a process that starts late grows in any case."""
    found = []
    for number in range(361):
        part = number / 360
        processes = {"shuffle 7": ProcessSample(int(3e7 * (1 + memory * part)), int(20 + files * part), 3)}
        if part > 0.9:
            processes["export 9"] = ProcessSample(int(1e9 * part), 20, 3)
        sizes = {
            "pipeline.consumers": int(1e7 * (1 + table * part)),
            "public.sequin_events": int(1e9 * (1 + log * part)),
        }
        found.append(Sample(number * 10.0, processes, {name: TableSample(size, 5) for name, size in sizes.items()}))
    return found


@pytest.mark.parametrize(
    ("grown", "said"),
    [
        ({}, ""),
        ({"log": 3.0}, ""),
        ({"memory": 0.05}, ""),
        ({"memory": 0.3}, "memory of shuffle 7 grew by 9% in the second half, from"),
        ({"table": 0.3}, "table pipeline.consumers grew by 9% in the second half, from"),
        ({"files": 20}, "open files of shuffle 7 grew by"),
    ],
)
def test_growth_of_the_second_half_is_named(grown: dict[str, float], said: str) -> None:
    half = verdict.second_half(run(**grown), MINUTES * 60)
    found = verdict.findings(half, {"pipeline.lag_samples": 720}, MINUTES)
    assert len(found) == bool(said)
    assert "".join(found).startswith(said)


def test_a_list_that_is_longer_than_the_time_explains_is_named() -> None:
    half = verdict.second_half(run(), MINUTES * 60)
    (found,) = verdict.findings(half, {"pipeline.lag_samples": 900}, MINUTES)
    assert found.startswith("table pipeline.lag_samples has 900 rows, and 792 is the most that 60 minutes explain")


def test_the_page_is_made_from_a_result(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text("\n".join(sample.to_json() for sample in run(table=0.3)))
    assert samples.read(file) == run(table=0.3)
    assert "all other tables" in page.drawing(samples.read(file))
    result = {
        "minutes": 60,
        "server_minutes": 60,
        "date": "2026-12-01",
        "machine": "2 cores",
        "lines": ["a line"],
        "growths": [["x"] * 5],
    }
    body = page.body({**result, "rows": {"pipeline.lag_samples": 720}, "findings": ["a table grew"]})
    assert body.startswith("A run of 60 minutes on 2026-12-01, on 2 cores.")
    assert "| `pipeline.lag_samples` | 720 | 792 |" in body
    assert body.endswith("- **Finding:** a table grew.")
    assert GeneratedPart(page.PART.page, "figures").with_body(body)
