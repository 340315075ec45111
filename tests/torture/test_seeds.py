"""Random transactions under random faults: `make torture` runs many; here are some short seeds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.fixtures.postgres import MAJORS, bin_dir
from tests.torture.faults.faults import KINDS
from tests.torture.plan import hostile
from tests.torture.plan.deeds_shapes import SHAPE_DEEDS
from tests.torture.plan.plan import Plan
from tests.torture.plan.workload import make
from tests.torture.rig import Rig
from tests.torture.seeds import Outcome, run

SEEDS = (75, 29, 31)
"""One with catch-up, one with existing rows, one with DDL; each fault at its place is in test_fault_points.py."""
FAULTS = 4
_INSTALLED = [major for major in MAJORS if bin_dir(major)]
_PLACES = sorted((_INSTALLED[n % len(_INSTALLED)], seed) for n, seed in enumerate(SEEDS))
LONG = (29, 31)
"""Their peculiarities have separate tests."""
PLACES = [
    pytest.param(major, seed, marks=[pytest.mark.xdist_group(f"rig {major}"), *[pytest.mark.long] * (seed in LONG)])
    for major, seed in _PLACES
]
"""For --dist loadgroup: one pair of servers of each version."""
ODD = (31,)
"""Those with tables of every kind and DDL; more of them are for `make torture`."""
OLD = (29,)
"""Seeds in which tables have existing rows, which the server reads."""
HOSTILE_TO = (75,)
"""Those whose server connects as roles that have every hostile setting."""
SHORT = 12
"""Transactions where each setting has its turn: what one breaks, it breaks at once."""
CATCHUP = (75,)
"""Those in which the server opens more slots as soon as it is a little behind."""
ACTIONS = {
    **dict.fromkeys(("items", "lines", "whole"), ("insert", "update", "delete")),
    **dict.fromkeys(("scratch", "parent", "child"), ("insert", "truncate")),
}
"""Of tables whose name begins so: each connection has its own to truncate."""


def assert_everything_occurs(plan: Plan, occurred: frozenset[str]) -> None:
    """Else the seed would say less than it seems to."""
    found = {re.sub(r"_\d ", " ", name) for name in occurred}
    assert {f"public.{table} {action}" for table, actions in ACTIONS.items() for action in actions} <= found
    assert {".note message", ".other prefix message", "unchanged"} <= occurred
    assert not any(name.startswith("private.") for name in occurred)
    text = plan.show()
    for part in ("copy public.items", "copy public.lines", "private.items", "release", "rollback to", "(false, 'note'"):
        assert part in text, part
    kinds = {step.kind for step in plan.steps}
    assert {"commit", "rollback", "prepare", "commit prepared", "rollback prepared"} <= kinds


def assert_odd_tables_occur(outcome: Outcome) -> None:
    """Some of each, and most of what was tried was done: else DDL would be refused without anybody's notice."""
    for kind in ("default insert", "default update", "default delete", "full insert", "partition insert"):
        assert outcome.kinds[kind], kind
    done = sum(count for deed, count in outcome.deeds.items() if ":" not in deed)
    assert done > outcome.deeds.total() * 0.6, outcome.deeds
    assert len([deed for deed in SHAPE_DEEDS if outcome.deeds[deed]]) > len(set(SHAPE_DEEDS)) / 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("major", "seed"), PLACES)
def test_the_log_equals_what_was_written(rigs: Callable[[int], Rig], major: int, seed: int):
    settings = hostile.ALL if seed in HOSTILE_TO else {}
    odd, catchup, old = seed in ODD, seed in CATCHUP, seed in OLD
    plan = make(seed, KINDS, quick_faults=FAULTS, settings=settings, odd=odd, catchup=catchup, old=old)
    outcome = run(rigs(major), plan)
    assert outcome.failure is None, f"{outcome.logs}\n{outcome.failure}"
    assert outcome.transactions >= 200
    assert outcome.changes >= 2_000
    assert outcome.hits.total() >= 3
    assert_everything_occurs(plan, outcome.occurred)
    assert (outcome.reads.total() > 500) == (seed in OLD)
    assert outcome.compared.total() > 500
    if seed in ODD:
        assert_odd_tables_occur(outcome)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("rig 18")
@pytest.mark.parametrize("place", range(len(hostile.HOSTILE)), ids=list(hostile.HOSTILE))
def test_each_hostile_setting_alone_and_with_each_other(rigs: Callable[[int], Rig], place: int):
    name, *others = list(hostile.HOSTILE)[place:]
    for chosen in [(name,), *((name, other) for other in others)]:
        settings = dict.fromkeys(hostile.SIDES, chosen)
        outcome = run(rigs(18), make(29, {}, SHORT, odd=False, catchup=False, old=False, settings=settings))
        assert outcome.failure is None, f"{chosen}: {outcome.failure}\n{outcome.logs}"
