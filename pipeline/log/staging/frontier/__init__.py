"""How far the log is: a model of what is staged and moved, and the statements that ask for it."""

from __future__ import annotations
