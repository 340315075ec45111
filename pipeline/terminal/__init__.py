"""Code that all commands share: settings, connections, questions, JSON, and output on a terminal."""

from __future__ import annotations
