"""`pipeline check`: what is wrong before the first start, and its remedy."""

from __future__ import annotations
