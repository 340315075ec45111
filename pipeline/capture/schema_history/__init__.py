"""Every version that the tables of the source have had, and from which place in the WAL on."""

from __future__ import annotations
