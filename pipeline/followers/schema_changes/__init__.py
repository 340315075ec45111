"""What DDL at the source makes of a follower's tables."""

from __future__ import annotations
