"""What is old enough to go, and how it goes without a reader's missing it."""

from __future__ import annotations
