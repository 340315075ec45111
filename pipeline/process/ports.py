"""Checks whether this process could listen at an address."""

from __future__ import annotations

import socket


def listen_error(host: str, port: int) -> str | None:
    """Return the system's error if this process cannot listen at the address now; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None
