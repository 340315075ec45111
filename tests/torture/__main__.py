"""`python -m tests.torture --minutes 30 --pg 18`: a line for each seed, and a row in docs/internals/torture.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from tests.torture import record
from tests.torture.faults.faults import KINDS
from tests.torture.plan import hostile
from tests.torture.plan.plan import Plan, Ways
from tests.torture.plan.shrink import shrink
from tests.torture.plan.workload import make
from tests.torture.record import Run
from tests.torture.rig import Rig
from tests.torture.seeds import Outcome, run

TRIES = 3
"""How often a smaller plan is tried before it counts as not failing: the moment of a fault is never quite the same."""
SHRINK_MINUTES = 15.0


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 when every seed's log equalled its model."""
    options = _parse(arguments)
    for name in [name for name in os.environ if name.startswith("PIPELINE_")]:
        del os.environ[name]  # settings of the shell are not the servers'
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Rig(options.pg) as rig:
        if options.shrink is not None:
            return _shrink(rig, options)
        return _torture(rig, options)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no further seed after these minutes")
    parser.add_argument("--pg", type=int, default=18, help="major version of both databases")
    parser.add_argument("--seed", type=int, help="the first one; without it the run goes on after the last recorded")
    parser.add_argument("--seeds", type=int, help="at most this many; --seed 7 --seeds 1 replays one")
    parser.add_argument("--faults", type=_kinds, default=list(KINDS), help=f"only these, by comma: {', '.join(KINDS)}")
    parser.add_argument("--catchup", action="store_true", help="in every seed more slots are opened; recorded nowhere")
    parser.add_argument("--old", action="store_true", help="in every seed tables are read; recorded nowhere")
    parser.add_argument(
        "--ways",
        choices=get_args(Ways),
        default="default",
        help="how small batches get into the log; mixed: by turns, with hand-over between servers; recorded nowhere",
    )
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first failing seed, record nothing")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="look for a small plan that fails as this seed does")
    return parser.parse_args(arguments)


def _kinds(text: str) -> list[str]:
    chosen = [name.strip() for name in text.split(",")]
    if unknown := set(chosen) - set(KINDS):
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(sorted(unknown))}")
    return chosen


def _plan(options: argparse.Namespace, seed: int) -> Plan:
    kinds = {name: KINDS[name] for name in options.faults}
    catchup, old = (True if chosen else None for chosen in (options.catchup, options.old))
    return make(seed, kinds, catchup=catchup, old=old, ways=options.ways)


def _torture(rig: Rig, options: argparse.Namespace) -> int:
    first = options.seed if options.seed is not None else record.next_seed(options.pg)
    done = Run(_version(rig), first, options.ways)
    started = time.monotonic()
    with suppress(KeyboardInterrupt):
        while _goes_on(done, options, time.monotonic() - started):
            seed = first + done.seeds
            done.add(outcome := run(rig, _plan(options, seed), _file(options, seed, "data")))
            _tell(outcome, options, counts=done.counts(outcome))
    minutes = (time.monotonic() - started) / 60
    _summarize(done, minutes)
    partly = options.stop_at_first or options.seeds is not None or options.faults != list(KINDS) or options.catchup
    partly |= options.old or options.ways != "default"
    if done.seeds and not partly:
        record.append(done, minutes)
    return 1 if done.failed else 0


def _goes_on(done: Run, options: argparse.Namespace, seconds: float) -> bool:
    if options.stop_at_first and done.failed:
        return False
    return seconds < options.minutes * 60 and (options.seeds is None or done.seeds < options.seeds)


def _tell(outcome: Outcome, options: argparse.Namespace, *, counts: bool) -> None:
    state = "FAILED" if outcome.failure is not None else "ok" if counts else "ok, but not counted,"
    print(
        f"seed {outcome.seed}: {state} in {outcome.seconds:.1f} s, {outcome.transactions} transactions, "
        f"{outcome.changes} changes, {outcome.reads.total()} rows read; {record.in_short(outcome.hits)}; "
        f"{outcome.share_at_once:.0%} at once, {outcome.partitions} adopted partitions: {_counted(outcome.ways)}; "
        f"DDL {outcome.ddl}{_settings(outcome.seed)}",
        flush=True,
    )
    if outcome.failure is not None:
        file = _file(options, outcome.seed, "log")
        file.write_text(f"{outcome.failure}\n\n{outcome.logs}\n")
        print(f"{outcome.failure}\nlogs: {file}, data: {_file(options, outcome.seed, 'data')}")
        only = "" if options.faults == list(KINDS) else f" --faults '{','.join(options.faults)}'"
        ways = "" if options.ways == "default" else f" --ways {options.ways}"
        command = f"python -m tests.torture --pg {options.pg}{only}{ways}"
        print(
            f"again: {command} --seed {outcome.seed} --seeds 1\nsmaller: {command} --shrink {outcome.seed}", flush=True
        )


def _file(options: argparse.Namespace, seed: int, what: str) -> Path:
    """Where the logs, or the data directories, of a failed seed are kept."""
    return Path(tempfile.gettempdir()) / f"torture-pg{options.pg}-seed{seed}.{what}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none counted"


def _settings(seed: int) -> str:
    drawn = hostile.draw(seed)
    return "".join(f"; {side} with {', '.join(drawn[side])}" for side in sorted(drawn))


def _summarize(done: Run, minutes: float) -> None:
    print(
        f"\n{done.seeds} seeds from {done.first} on in {minutes:.1f} minutes on PostgreSQL {done.version}: "
        f"{done.transactions:,} transactions, {done.changes:,} changes, {done.hits.total()} faults that hit"
    )
    if done.ways != "default":
        print(f"{done.counted} of these seeds count, {done.at_once:,} changes were written at once")
    for kind, count in sorted(done.hits.items()):
        print(f"  {kind:<20} {count:>4}")
    if any(done.adopted):
        some = sorted(done.adopted)
        print(
            f"adopted: {sum(some):,} rows, {some[0]:,} to {some[-1]:,} a seed, {some[len(some) // 2]:,} in the middle; "
            f"{done.partitions} partitions"
        )
    _tabulate("DDL", done.ddl)
    _tabulate("refused, or without anything to do it to", {name: n for name, n in done.deeds.items() if ":" in name})
    _tabulate("changes of tables of every kind", done.kinds)
    print(f"failures: {', '.join(map(str, done.failed)) or 'none'}")


def _tabulate(title: str, counts: Mapping[str, int]) -> None:
    print(f"{title}: {', '.join(f'{name} {count}' for name, count in sorted(counts.items())) or 'none'}")


def _version(rig: Rig) -> str:
    with rig.source.cluster.connect() as connection:
        return connection.info.parameter_status("server_version").split()[0]  # type: ignore[union-attr]


def _shrink(rig: Rig, options: argparse.Namespace) -> int:
    plan = _plan(options, options.shrink)
    seen: list[Outcome] = []
    if not _failing(rig, seen, lambda _: None)(plan):
        print(f"seed {options.shrink} did not fail in {TRIES} tries")
        return 0
    deadline = time.monotonic() + min(options.minutes, SHRINK_MINUTES) * 60
    small = shrink(plan, _failing(rig, seen, _progress), lambda: time.monotonic() > deadline)
    print(f"\nof seed {options.shrink} this is left, and it fails:\n\n{small.show()}\n\n{seen[-1].failure}")
    return 1


def _failing(rig: Rig, seen: list[Outcome], tell: Callable[[Plan], None]) -> Callable[[Plan], bool]:
    """Whether a plan fails within TRIES; failing outcomes are added to `seen`."""

    def fails(plan: Plan) -> bool:
        for _ in range(TRIES):
            outcome = run(rig, plan)
            if outcome.failure is not None:
                seen.append(outcome)
                tell(plan)
                return True
        return False

    return fails


def _progress(plan: Plan) -> None:
    print(
        f"fails with {len(plan.faults)} faults, {len(plan.transactions)} transactions, {len(plan.steps)} statements",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
