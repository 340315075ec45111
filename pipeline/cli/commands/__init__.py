"""Groups of commands, one module each; `pipeline.cli.main` puts them together."""

from __future__ import annotations
