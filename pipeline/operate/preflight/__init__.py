"""`pipeline check`: find problems before the first start, each with its remedy."""

from __future__ import annotations
