"""What DDL at the source makes of a follower's tables: forms, differences, alterations, tables that are new."""

from __future__ import annotations
