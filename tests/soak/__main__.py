"""A server under constant load, with kills and a failover of the source in the first half: does anything grow?

`make soak MINUTES=60`. First it looks for the highest rate that all readers follow, and takes three quarters of it.
Samples, figures and a drawing are left in build/soak.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.__main__ import processor
from tests.fixtures.server import ROOT
from tests.fixtures.waiting import eventually
from tests.soak import ending, page, samples, verdict
from tests.soak.samples import Sampler
from tests.soak.site import PATIENCE, Site

FIRST, FACTOR, STEP_SECONDS, CONFIRM_SECONDS = 100.0, 1.4, 60.0, 300.0
"""The search: its first rate, the factor between two rates, and how long each rate and the highest one must hold."""
LATE = 5.0
"""Seconds that a reader may be behind in the last third of a step."""
KEPT = 0.95
"""The share of the rate that the writer must reach."""
SHARE = 0.75
KINDS = ("memory", "session", "open files", "threads", "table")
FAILOVER_AT = 0.4
"""Part of the run after which the source fails over; before it, each role is killed."""


def main() -> int:
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # ends all that it has started
    target = ROOT / "build" / "soak"
    target.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    machine = (
        f"{len(os.sched_getaffinity(0))} cores of an {processor()}, with a load of {os.getloadavg()[0]:.1f} before"
    )
    try:
        with Site(folder, options.minutes) as site:
            rate = options.rate or SHARE * _highest_rate(site, min(1.0, options.minutes / 60))
            result = {**_soak(site, rate, options.minutes, target), "machine": machine}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (target / "result.json").write_text(json.dumps(result, indent=1))
    (target / "soak.svg").write_text(page.drawing(samples.read(target / "samples.jsonl")))
    print(f"\n{page.body(result)}\n\nsamples, result and drawing: {target}")
    return 1 if result["findings"] else 0


def _highest_rate(site: Site, scale: float) -> float:
    """Return the highest rate that held, in transactions a second."""
    held, rate = FIRST, FIRST
    while _holds(site, rate, max(15.0, STEP_SECONDS * scale)):
        held, rate = rate, rate * FACTOR
    while not _holds(site, held, max(15.0, CONFIRM_SECONDS * scale)):
        held /= FACTOR
    return held


def _holds(site: Site, rate: float, seconds: float) -> bool:
    """Write at this rate, and return True if the writer reached it and all readers were close in the last third."""
    before, began = site.clients.written(), time.monotonic()
    site.clients.rate.value = rate
    time.sleep(seconds * 2 / 3)
    closest: dict[str, float] = {}
    while (now := time.monotonic()) < began + seconds:
        for name, newest in site.newest_seen().items():
            closest[name] = min(closest.get(name, seconds), (site.clients.written() - newest) / rate)
        time.sleep(0.5)
    reached = (site.clients.written() - before) / (now - began)
    slow = [f"{name} is {late:.0f} s behind" for name, late in closest.items() if late > LATE]
    slow += [f"only {reached:.0f} are written"] if reached < KEPT * rate else []
    print(f"{rate:,.0f} transactions a second for {seconds:.0f} s: {', '.join(slow) or 'held'}", flush=True)
    if slow:
        site.clients.rate.value = 0
        eventually(site.is_drained, PATIENCE)
    return not slow


def _deeds(site: Site, seconds: float) -> Iterator[tuple[float, str]]:
    """Yield when each role is killed, and when the source fails over, in seconds from the beginning."""
    roles = site.roles()
    for number, role in enumerate(roles, 1):
        yield seconds * FAILOVER_AT * number / (len(roles) + 1), role
    yield seconds * FAILOVER_AT, "failover"


def _soak(site: Site, rate: float, minutes: float, target: Path) -> dict[str, Any]:
    seconds, before = minutes * 60, site.clients.written()
    began = time.monotonic()
    site.clients.rate.value = rate
    with Sampler(site.server.process.pid, site.database_dsn, target / "samples.jsonl", min(10.0, minutes)) as sampler:
        for at, deed in _deeds(site, seconds):
            time.sleep(max(0.0, began + at - time.monotonic()))
            print(f"{(time.monotonic() - began) / 60:.1f} min: {deed}", flush=True)
            if deed == "failover":
                site.fail_over()
            else:
                site.kill(deed)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    reached = (site.clients.written() - before) / (time.monotonic() - began)
    wrong = [f"the sampler ended: {sampler.error}"] if sampler.error else []
    wrong += ending.wrongs(site) + ending.refused(site)
    half = verdict.second_half(samples.read(target / "samples.jsonl"), seconds)
    rows = ending.row_counts(site)
    grown = verdict.growths(half)
    most = [
        max((each for each in grown if each.name.startswith(kind)), key=lambda each: each.end - each.begin)
        for kind in KINDS
    ]
    return {
        "minutes": minutes,
        "server_minutes": site.minutes(),
        "date": datetime.now(UTC).date().isoformat(),
        "lines": [
            f"{reached:,.0f} transactions of three changes a second, of {rate:,.0f} wanted",
            *ending.figures(site, half),
        ],
        "growths": [_shown(each) for each in dict.fromkeys((*most, *(each for each in grown if each.too_much)))],
        "rows": rows,
        "findings": wrong + verdict.findings(half, rows, site.minutes()),
    }


def _shown(growth: verdict.Growth) -> list[str]:
    counted = growth.least == verdict.LEAST_COUNT
    shown = [
        f"{value:,.0f}" if counted else f"{value / 1e6:,.1f} MB"
        for value in (growth.begin, growth.end, growth.per_hour)
    ]
    return [growth.name, *shown[:2], f"{growth.share:.1%}", shown[2]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="after the search (default 60)")
    parser.add_argument("--rate", type=float, default=0.0, help="transactions a second, instead of the search")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
