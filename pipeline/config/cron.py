"""Cron expressions as `crontab` reads them. APScheduler, which computes the times, is imported at the first use."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

OFF = "off"
FORM = "minute, hour, day of month, month and day of week, like */5 * * * *, or off"
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def parse(expression: str) -> CronTrigger:
    """Return the trigger of a cron expression, in UTC. The text of its ValueError says what was expected."""
    from apscheduler.triggers.cron import CronTrigger

    fields = expression.split()
    if len(fields) != 5:
        raise ValueError(f"expected {FORM}, not {expression!r}")
    try:
        trigger = CronTrigger.from_crontab(" ".join([*fields[:4], _weekdays(fields[4])]), timezone="UTC")
    except ValueError as error:
        raise ValueError(f"expected {FORM}, not {expression!r}: {_plain(error)}") from None
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        raise ValueError(f"{expression!r} never occurs; expected {FORM}")
    return trigger


def _weekdays(field: str) -> str:
    """Replace numbers of weekdays by names, since APScheduler counts from Monday and crontab from Sunday."""
    return ",".join(_named(part) for part in field.split(","))


def _named(part: str) -> str:
    found = re.fullmatch(r"(?:(\*)|(\d)(?:-(\d))?)(?:/(\d+))?", part)
    if not found or (found[1] and not found[4]):
        return part
    first = int(found[2] or 0)
    last = int(found[3] or (first if found[2] and not found[4] else 6))
    step = int(found[4] or 1)
    if not 0 <= first <= last <= 7 or not step:
        raise ValueError(f"{part} is not a day of the week (0 to 7, from Sunday)")
    return ",".join(_DAYS[day % 7] for day in range(first, last + 1, step))


def _plain(error: ValueError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
