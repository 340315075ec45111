"""Settings: where they come from, and how their values are written."""

from __future__ import annotations
