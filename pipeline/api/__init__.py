"""What the server answers over HTTP."""

from __future__ import annotations
