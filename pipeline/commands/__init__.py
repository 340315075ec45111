"""Groups of commands, one module each; `pipeline.cli` puts them together."""

from __future__ import annotations
