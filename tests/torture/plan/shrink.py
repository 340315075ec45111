"""From a plan that fails, a smaller one that fails too, small enough for a person to read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.torture.plan.plan import Fault, Item, Plan, Step

Fails = Callable[[Plan], bool]
"""Whether a plan fails; where that is a matter of luck it has to try more than once."""
_NEEDED = ("begin", "commit", "rollback", "prepare", "commit prepared", "rollback prepared")


def shrink(plan: Plan, fails: Fails, expired: Callable[[], bool] = lambda: False) -> Plan:
    """Fewer faults first, then fewer transactions, then fewer statements, until `expired` or nothing more can go.

    The plan given is taken to fail; what is returned has failed, or is the plan itself.
    """
    for units in (_faults, _transactions, _statements):
        plan = _reduce(plan, units, fails, expired)
    return plan


def _faults(plan: Plan) -> list[list[Item]]:
    return [[item] for item in plan.items if isinstance(item, Fault)]


def _transactions(plan: Plan) -> list[list[Item]]:
    found: dict[int, list[Item]] = {}
    for step in plan.steps:
        found.setdefault(step.transaction, []).append(step)
    return list(found.values())


def _statements(plan: Plan) -> list[list[Item]]:
    return [[item] for item in plan.items if isinstance(item, Step) and item.kind not in _NEEDED]


def _reduce(plan: Plan, units: Callable[[Plan], list[list[Item]]], fails: Fails, expired: Callable[[], bool]) -> Plan:
    """Leave out as many units as possible: halves, then quarters, and so on down to single ones."""
    size = len(units(plan))
    while size >= 1:
        gone = False
        for chunk in _chunks(units(plan), size):
            if expired():
                return plan
            candidate = plan.without(item for unit in chunk for item in unit)
            if fails(candidate):
                plan, gone = candidate, True
        if not gone or size > 1:
            size = min(size // 2, len(units(plan)))
    return plan


def _chunks(units: Sequence[list[Item]], size: int) -> list[Sequence[list[Item]]]:
    return [units[at : at + size] for at in range(0, len(units), size)]
