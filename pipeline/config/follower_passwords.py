"""The environment variables with passwords of followers, one for each by its name. They are no settings. Pure."""

from __future__ import annotations

import re

from pipeline.config import secret_files

PREFIX = "PIPELINE_FOLLOWER_PASSWORD_"


def variable(follower: str) -> str:
    """Return the variable of this follower: its name in upper case, with `_` for all but letters and digits."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", follower.upper())


def variables(follower: str) -> frozenset[str]:
    """Return the variable of this follower, and the one that may name a file with the password."""
    return frozenset((variable(follower), secret_files.naming(variable(follower))))


def is_one(name: str) -> bool:
    """True if a variable has the password of some follower."""
    return re.fullmatch(rf"{PREFIX}[A-Z0-9_]+", name) is not None
