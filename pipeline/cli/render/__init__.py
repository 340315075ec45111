"""Everything that prints reports to a terminal."""

from __future__ import annotations
