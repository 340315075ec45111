"""Events out, live: who reads what and how far, woken when there is more."""

from __future__ import annotations
