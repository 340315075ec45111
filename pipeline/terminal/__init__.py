"""What all commands share: settings, connections, questions, JSON, and what is drawn in a terminal."""

from __future__ import annotations
