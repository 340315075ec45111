"""Names for the slots of sessions, as PG Delta Stream made them. Pure."""

from __future__ import annotations

import secrets

WORDS = ("gigantic", "scold", "greasy", "shaggy", "wasteful", "few", "face", "pet", "ablaze", "mundane")
NUMBERS = 100


def any_name() -> str:
    """One of a thousand: `delta_`, a word and a number below 100."""
    return f"delta_{secrets.choice(WORDS)}{secrets.randbelow(NUMBERS)}"
