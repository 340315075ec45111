"""The HTTP server: REST API, WebSocket streams, health, metrics."""

from __future__ import annotations
