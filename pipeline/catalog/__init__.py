"""What we know: the source, every form its tables have had, and who holds which role."""

from __future__ import annotations
