"""What the clients of other systems speak over HTTP: each wire has its paths, and its own form of errors."""

from __future__ import annotations
