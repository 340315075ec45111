"""Commands that change what stands in the way: adopt, skip, retry, reader roles."""

from __future__ import annotations
