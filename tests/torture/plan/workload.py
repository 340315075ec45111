"""From a seed, a plan: random transactions of several connections, interleaved, with faults in between. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from tests.torture.plan.hostile import Settings, draw
from tests.torture.plan.kinds import ODD_LANES
from tests.torture.plan.lane import LanePlanner, PlainLanePlanner, SteadyLanePlanner
from tests.torture.plan.odd_lane import OddLanePlanner
from tests.torture.plan.old_tables import OldLanePlanner, SteadyOldLanePlanner
from tests.torture.plan.plan import ADOPTING, STEADY, Fault, Item, Plan, Step, Ways
from tests.torture.plan.statements import LANES, RUSHING_LANE

Lane = LanePlanner | OddLanePlanner

TRANSACTIONS = 235
"""A few more than the 200 of a seed: those that a crash interrupts do not count."""
STEADY_TRANSACTIONS = 2_000
"""Where they come steadily: after a fault there has to be time in which they are written at once again."""
FAULTS = 8
"""Quick ones of a seed."""
LARGE_ONE_IN = 3
"""One seed of so many has a transaction that spans several staging segments of 2,000 rows."""
SLOW_ONE_IN, STEADY_SLOW_ONE_IN = 2, 8
"""One seed of so many has a fault that takes its time; the second where transactions come steadily."""
ODD_NOT_IN = 4
"""One seed of this many leaves the odd tables, and DDL, alone."""
ODD_FORCED_ONE_IN, STEADY_SHARE = 5, 0.85
"""But where ways are forced, only one of this many has them: what they write is mostly moved. Where transactions come
steadily, the others have that share of them."""
CATCHUP_ONE_IN, CATCHUP_FAULTS = 3, 4
"""One seed in CATCHUP_ONE_IN opens more slots as soon as it lags, with CATCHUP_FAULTS faults for that."""
MEDDLING = 4
"""How many times the meddler acts in a seed."""
OLD_SHARE, SNAPSHOT_FAULTS = 0.5, 5
"""The share of seeds that begin with rows to read, and their number of faults for that."""
WAY_FAULTS = 4
"""Times that another server takes over which writes small batches in another way, where ways are mixed."""
BACKLOGS, RUSHED = 4, (30, 60)
"""If a backlog becomes partitions: how many are made, and of how many transactions. The worker's stream is held while
they are written. Each backlog has its own fault, in one of the steps in which it is adopted."""
HELD = "hold stream"
OUTSIDE_SHARE = 0.04
"""How often a connection to odd tables does something between two transactions."""
_FIRST_FAULT, _LAST_FAULT = 0.05, 0.85


@dataclass(frozen=True)
class FaultKind:
    """`seconds`: how long it lasts, at least and at most; zeros: over at once. `slow`: it keeps a seed waiting.

    `often`: how many times it comes where others come once.
    """

    seconds: tuple[float, float] = (0.0, 0.0)
    slow: bool = False
    often: int = 1
    catchup: bool = False
    """It needs a catch-up."""
    meddling: bool = False
    """It is what a person does who has all rights."""
    lasting: bool = False
    """The log has something of its owner's from then on, so that nothing becomes a partition any more."""
    snapshot: bool = False
    """It needs tables that are read."""
    mixed: bool = False
    """It needs servers that differ in the way that small batches take."""
    adopting: bool = False
    """It needs a backlog that becomes partitions."""

    @property
    def special(self) -> bool:
        """Whether it comes only in some seeds, beside the others."""
        return self.catchup or self.meddling or self.snapshot or self.mixed or self.adopting


def make(
    seed: int,
    kinds: Mapping[str, FaultKind],
    transactions: int | None = None,
    quick_faults: int = FAULTS,
    *,
    odd: bool | None = None,
    catchup: bool | None = None,
    settings: Settings | None = None,
    old: bool | None = None,
    ways: Ways = "default",
) -> Plan:
    """At least 200 transactions and 2,000 changes. Equal arguments give equal plans.

    `odd`: whether tables of every kind and DDL take part, `catchup`: whether many slots read what the worker is behind,
    `settings`: hostile ones, `old`: whether tables have rows that are read; by default the seed decides. What `kinds`
    has of catch-up, of what is read, of mixed `ways` or of adopting ones, comes only then, beside other faults.
    """
    steady, adopts = ways in STEADY, ways in ADOPTING
    forced = steady or adopts
    transactions = transactions or (STEADY_TRANSACTIONS if steady else TRANSACTIONS)
    if catchup is None:  # never, if one worker must stay at the head
        catchup = not steady and seed % (ODD_FORCED_ONE_IN if forced else CATCHUP_ONE_IN) == 0
    own = {name: kind for name, kind in kinds.items() if kind.catchup}
    lasting = not adopts or seed % ODD_FORCED_ONE_IN == 0
    meddling = {name: kind for name, kind in kinds.items() if kind.meddling and (lasting or not kind.lasting)}
    snapshot = {name: kind for name, kind in kinds.items() if kind.snapshot}
    mixed = {name: kind for name, kind in kinds.items() if kind.mixed}
    adopting = {name: kind for name, kind in kinds.items() if kind.adopting}
    kinds = {name: kind for name, kind in kinds.items() if not kind.special}
    chance = random.Random(seed)
    if old is None:
        old = random.Random(f"old {seed}").random() < (OLD_SHARE / 2 if forced else OLD_SHARE)
    odd = _is_odd(seed, forced=forced) if odd is None else odd
    lanes = _lanes(chance, odd=odd, old=old, plain=forced and not odd, steady=steady)
    items: list[Item] = list(_interleaved(chance, lanes, transactions, steady=steady))
    faults = _faults(seed, chance, kinds, quick_faults, STEADY_SLOW_ONE_IN if steady else SLOW_ONE_IN)
    places = sorted(chance.randint(int(len(items) * _FIRST_FAULT), int(len(items) * _LAST_FAULT)) for _ in faults)
    if len(places) > 1 and chance.random() < 0.5:  # two at once
        places[1] = places[0]
    for place, fault in reversed(list(zip(places, faults, strict=True))):
        items.insert(place, fault)
    if catchup:
        _strew(items, chance, _faults(seed, random.Random(-seed), own, CATCHUP_FAULTS))
    meddler = random.Random(f"meddler {seed}")
    _strew(items, meddler, _faults(seed, meddler, meddling, MEDDLING))
    if old:
        _strew(items, reading := random.Random(f"snapshot {seed}"), _faults(seed, reading, snapshot, SNAPSHOT_FAULTS))
    if ways in ("mixed", "all"):
        _strew(items, changing := random.Random(f"ways {seed}"), _faults(seed, changing, mixed, WAY_FAULTS))
    rushed = _add_backlogs(items, seed, adopting) if adopts else frozenset()
    settings = draw(seed) if settings is None else settings
    return Plan(seed, tuple(items), catchup, _bearable(settings) if old else settings, old, ways, rushed)


def _is_odd(seed: int, *, forced: bool) -> bool:
    return seed % ODD_NOT_IN != 0 and (not forced or seed % ODD_FORCED_ONE_IN == 0)


def _bearable(settings: Settings) -> Settings:
    """The timeouts of the role at the source hold for those who read tables: too short, and none is read."""
    source = tuple(name for name in settings.get("source", ()) if not name.endswith("_timeout"))
    return {**settings, **({"source": source} if "source" in settings else {})}


def _strew(items: list[Item], chance: random.Random, faults: Sequence[Fault]) -> None:
    for fault in faults:
        items.insert(chance.randint(int(len(items) * _FIRST_FAULT), int(len(items) * _LAST_FAULT)), fault)


def _add_backlogs(items: list[Item], seed: int, kinds: Mapping[str, FaultKind]) -> frozenset[int]:
    """Put them in between; returns the transactions of which they are."""
    chance = random.Random(f"backlogs {seed}")
    numbers = count(max((item.transaction for item in items if isinstance(item, Step)), default=0) + 1)
    lane = LanePlanner(RUSHING_LANE, chance, lambda: next(numbers))
    faults = _faults(seed, chance, {name: kind for name, kind in kinds.items() if name != HELD}, BACKLOGS)
    rushed: set[int] = set()
    first, last = int(len(items) * _FIRST_FAULT), int(len(items) * _LAST_FAULT)
    for number, place in enumerate(sorted((chance.randint(first, last) for _ in range(BACKLOGS)), reverse=True)):
        backlog: list[Item] = [*faults[number : number + 1]]
        if HELD in kinds:
            backlog.append(Fault(HELD, round(chance.uniform(*kinds[HELD].seconds), 1)))
        backlog += [step for _ in range(chance.randint(*RUSHED)) for step in lane.rush()]
        rushed |= {item.transaction for item in backlog if isinstance(item, Step)}
        items[place:place] = backlog
    return frozenset(rushed)


def _faults(
    seed: int, chance: random.Random, kinds: Mapping[str, FaultKind], quick_faults: int, slow_one_in: int = SLOW_ONE_IN
) -> list[Fault]:
    slow = [name for name, kind in kinds.items() if kind.slow]
    quick = [name for name, kind in kinds.items() if not kind.slow for _ in range(kind.often)]
    names = _turn(quick, seed, quick_faults)
    if slow and (seed % slow_one_in == 0 or not quick):
        names += _turn(slow, seed // slow_one_in, 1)
    chance.shuffle(names)
    return [Fault(name, round(chance.uniform(*kinds[name].seconds), 1)) for name in names]


def _turn(names: list[str], seed: int, how_many: int) -> list[str]:
    """Every kind comes equally often over successive seeds, in another order each round."""
    chosen = []
    for place in range(seed * how_many, (seed + 1) * how_many) if names else []:
        order = random.Random(place // len(names)).sample(names, len(names))
        chosen.append(order[place % len(names)])
    return chosen


def _lanes(chance: random.Random, *, odd: bool, old: bool, plain: bool, steady: bool) -> list[Lane]:
    numbers = count(1)
    planner: type[LanePlanner]
    if steady:
        planner = SteadyOldLanePlanner if old else SteadyLanePlanner
    else:
        planner = OldLanePlanner if old else PlainLanePlanner if plain else LanePlanner
    lanes: list[Lane] = [planner(number, chance, lambda: next(numbers)) for number in range(1, LANES + 1)]
    if odd:
        lanes += [OddLanePlanner(number, chance, lambda: next(numbers)) for number in ODD_LANES]
    return lanes


def _interleaved(chance: random.Random, lanes: Sequence[Lane], transactions: int, *, steady: bool) -> list[Step]:
    steps: list[Step] = []
    with_large = not steady and chance.randrange(LARGE_ONE_IN) == 0
    large_at = chance.randrange(transactions) if with_large else transactions
    begun = 0
    while begun < transactions:
        lane = chance.choice(lanes[:LANES] if steady and chance.random() < STEADY_SHARE else lanes)
        large = begun >= large_at
        new = [lane.next()] if not lane.idle else _between(chance, lane, lanes, large=large)
        begun += any(step.kind == "begin" for step in new)
        if large and len(new) > 1:
            large_at = transactions
        steps += new
    for lane in lanes:
        while not lane.idle:
            steps.append(lane.next())
    for lane in lanes:
        steps += [resolve(lane.number) for resolve in _resolving(lane)]
    return steps


def _between(chance: random.Random, lane: Lane, lanes: Sequence[Lane], *, large: bool) -> list[Step]:
    """What a connection does that has no transaction open."""
    waiting = [resolve for other in lanes for resolve in _resolving(other)]
    if waiting and chance.random() < 0.2:
        return [chance.choice(waiting)(lane.number)]
    if isinstance(lane, OldLanePlanner) and not large and (steps := lane.between()):
        return steps
    if isinstance(lane, LanePlanner):
        return lane.large() if large else [lane.begin()]
    return [lane.outside() if chance.random() < OUTSIDE_SHARE else lane.begin()]


def _resolving(lane: Lane) -> list[Callable[[int], Step]]:
    """What ends each of its prepared transactions, on a connection of this number."""
    if isinstance(lane, OddLanePlanner):
        return [partial(lane.resolve, prepared) for prepared in lane.prepared]
    return [partial(lane.resolve, prepared) for prepared in lane.prepared]
