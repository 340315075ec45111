"""The environment variables with passwords of followers, one for each by its name: they are no settings. Pure."""

from __future__ import annotations

import re

from pipeline.config import secret_files

PREFIX = "PIPELINE_FOLLOWER_PASSWORD_"


def variable(follower: str) -> str:
    """The one for this follower: its name in upper case, with `_` for what is neither a letter nor a digit."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", follower.upper())


def variables(follower: str) -> frozenset[str]:
    """That one, and the one that may name a file with the password instead."""
    return frozenset((variable(follower), secret_files.naming(variable(follower))))


def is_one(name: str) -> bool:
    """Whether a variable is one for some follower."""
    return re.fullmatch(rf"{PREFIX}[A-Z0-9_]+", name) is not None
