"""Postgres itself: connections, the embedded server, migrations, and the holders of roles."""

from __future__ import annotations
