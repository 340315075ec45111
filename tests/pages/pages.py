"""The pages of the docs whose blocks are run."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = ("README.md", "docs/quickstart*.md")
"""Pages that `make test` runs, too; without `pip install` and `make`, which have their own tests."""
OTHERS = (
    "docs/reference/commands.md",
    "docs/reference/python.md",
    "docs/how-it-works.md",
    "docs/events.md",
    "docs/guarantees.md",
    "docs/use-cases/*.md",
    "docs/how-to/*.md",
    "docs/operate/sizing.md",
    "docs/operate/probes.md",
    "docs/operate/backup.md",
    "docs/operate/two-servers.md",
)
MOST_LEFT_OUT = 12
"""Blocks of all pages that say `<!-- not run: … -->`."""


def found(patterns: tuple[str, ...]) -> list[Path]:
    """Return the pages of these patterns."""
    return sorted(page for pattern in patterns for page in ROOT.glob(pattern))
