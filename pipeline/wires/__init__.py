"""Protocols of other systems, so that their clients can read from this server without changes.

Each wire has its own paths and its own form of errors.
"""

from __future__ import annotations
