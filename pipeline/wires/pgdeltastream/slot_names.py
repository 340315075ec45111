"""Names for the slots of sessions, in the form that PG Delta Stream uses. Does no IO."""

from __future__ import annotations

import secrets

WORDS = ("gigantic", "scold", "greasy", "shaggy", "wasteful", "few", "face", "pet", "ablaze", "mundane")
NUMBERS = 100


def any_name() -> str:
    """Return one of a thousand names: `delta_`, a word, and a number below 100."""
    return f"delta_{secrets.choice(WORDS)}{secrets.randbelow(NUMBERS)}"
