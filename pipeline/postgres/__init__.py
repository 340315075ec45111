"""Postgres itself: connections, the embedded server, migrations, who holds which role."""

from __future__ import annotations
