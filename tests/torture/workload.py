"""From a seed, a plan: random transactions of several connections, interleaved, with faults in between. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from tests.torture.lane import LanePlanner
from tests.torture.plan import Fault, Item, Plan, Step
from tests.torture.statements import LANES

TRANSACTIONS = 235
"""A few more than the 200 of a seed: those that a crash interrupts do not count."""
FAULTS = 8
"""Quick ones of a seed."""
LARGE_ONE_IN = 3
"""One seed of so many has a transaction that spans several staging segments of 2,000 rows."""
SLOW_ONE_IN = 2
"""One seed of so many has a fault that takes its time."""
_FIRST_FAULT, _LAST_FAULT = 0.05, 0.85


@dataclass(frozen=True)
class FaultKind:
    """`seconds`: how long it lasts, at least and at most; zeros: over at once. `slow`: it keeps a seed waiting.

    `often`: how many times it comes where others come once.
    """

    seconds: tuple[float, float] = (0.0, 0.0)
    slow: bool = False
    often: int = 1


def make(
    seed: int, kinds: Mapping[str, FaultKind], transactions: int = TRANSACTIONS, quick_faults: int = FAULTS
) -> Plan:
    """At least 200 transactions and 2,000 changes. Equal arguments give equal plans."""
    chance = random.Random(seed)
    items: list[Item] = list(_interleaved(chance, transactions))
    faults = _faults(seed, chance, kinds, quick_faults)
    places = sorted(chance.randint(int(len(items) * _FIRST_FAULT), int(len(items) * _LAST_FAULT)) for _ in faults)
    if len(places) > 1 and chance.random() < 0.5:  # two at once
        places[1] = places[0]
    for place, fault in reversed(list(zip(places, faults, strict=True))):
        items.insert(place, fault)
    return Plan(seed, tuple(items))


def _faults(seed: int, chance: random.Random, kinds: Mapping[str, FaultKind], quick_faults: int) -> list[Fault]:
    slow = [name for name, kind in kinds.items() if kind.slow]
    quick = [name for name, kind in kinds.items() if not kind.slow for _ in range(kind.often)]
    names = _turn(quick, seed, quick_faults)
    if slow and (seed % SLOW_ONE_IN == 0 or not quick):
        names += _turn(slow, seed // SLOW_ONE_IN, 1)
    chance.shuffle(names)
    return [Fault(name, round(chance.uniform(*kinds[name].seconds), 1)) for name in names]


def _turn(names: list[str], seed: int, how_many: int) -> list[str]:
    """Every kind comes equally often over successive seeds, in another order each round."""
    chosen = []
    for place in range(seed * how_many, (seed + 1) * how_many) if names else []:
        order = random.Random(place // len(names)).sample(names, len(names))
        chosen.append(order[place % len(names)])
    return chosen


def _interleaved(chance: random.Random, transactions: int) -> list[Step]:
    numbers = count(1)
    lanes = [LanePlanner(number, chance, lambda: next(numbers)) for number in range(1, LANES + 1)]
    begun, steps = 0, []
    large_at = chance.randrange(transactions) if chance.randrange(LARGE_ONE_IN) == 0 else -1
    while begun < transactions:
        lane = chance.choice(lanes)
        waiting = [(other, prepared) for other in lanes for prepared in other.prepared]
        if not lane.idle:
            steps.append(lane.next())
        elif waiting and chance.random() < 0.2:
            owner, prepared = chance.choice(waiting)
            steps.append(owner.resolve(prepared, lane.number))
        else:
            begun += 1
            steps += lane.large() if begun == large_at else [lane.begin()]
    for lane in lanes:
        while not lane.idle:
            steps.append(lane.next())
    for lane in lanes:
        steps += [lane.resolve(prepared, lane.number) for prepared in list(lane.prepared)]
    return steps
