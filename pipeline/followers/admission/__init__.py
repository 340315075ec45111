"""What a database must be like to become a follower: each refusal is one line with its remedy, and changes nothing."""

from __future__ import annotations
