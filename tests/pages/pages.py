"""The pages of the docs whose blocks are run, and those that are still to be rewritten."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = ("README.md", "docs/quickstart*.md")
"""Pages that `make test` runs, too; without `pip install` and `make`, which have their own tests."""
OTHERS = (
    "docs/reference/commands.md",
    "docs/reference/python.md",
    "docs/reference/sql.md",
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
NOT_REWRITTEN = frozenset(
    f"docs/how-to/{name}.md"
    for name in (
        "from-pg-delta-stream",
        "from-sequin",
        "from-walakka",
        "from-walstream",
        "move-to-a-follower",
    )
)
"""Pages that are not run yet. The list only becomes shorter: take out the page that you rewrite."""


def found(patterns: tuple[str, ...]) -> list[Path]:
    """Return the pages of these patterns that are run."""
    pages = sorted(page for pattern in patterns for page in ROOT.glob(pattern))
    return [page for page in pages if page.relative_to(ROOT).as_posix() not in NOT_REWRITTEN]
