"""What a round of the torture of consumers, or of walstream's clients, came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What a round did, and what was wrong."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return f"seed {self.seed}: {done}" + "".join(f"\n  WRONG: {what}" for what in self.wrong[:10])
