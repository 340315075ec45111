"""Every version that the tables of the source have had, and from where in the log it holds."""

from __future__ import annotations
