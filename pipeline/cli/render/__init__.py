"""Everything that draws a report in a terminal."""

from __future__ import annotations
