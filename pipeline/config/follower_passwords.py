"""The environment variables that hold passwords of followers. Each has a follower's name in it. Pure."""

from __future__ import annotations

import re

from pipeline.config import secret_files

PREFIX = "PIPELINE_FOLLOWER_PASSWORD_"


def variable(follower: str) -> str:
    """Return the follower's variable. It ends in the follower's name, in upper case; `_` replaces other characters."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", follower.upper())


def variables(follower: str) -> frozenset[str]:
    """Return the follower's variable for a password, and the variable that may name a file with it."""
    return frozenset((variable(follower), secret_files.naming(variable(follower))))


def is_one(name: str) -> bool:
    """True if a variable has the password of some follower."""
    return re.fullmatch(rf"{PREFIX}[A-Z0-9_]+", name) is not None
