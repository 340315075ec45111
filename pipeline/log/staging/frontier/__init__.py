"""The frontier of the log: a model of what is staged and moved, and the statements that query it."""

from __future__ import annotations
