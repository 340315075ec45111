"""Checks whether commits at the source wait for a walsender, which `synchronous_standby_names` chooses by name."""

from __future__ import annotations

import re

_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,()"]+)')


def can_choose(names: str, prefix: str) -> bool:
    """True if this value of `synchronous_standby_names` can choose a walsender whose name begins with `prefix`.

    Postgres compares names without regard to case; `*` matches any name, quoted or not.
    """
    listed = [(quoted or plain).replace('""', '"').lower() for quoted, plain in _NAME.findall(names)]
    return any(name == "*" or name.startswith(prefix.lower()) for name in listed)
