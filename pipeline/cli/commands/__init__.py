"""Groups of commands, one module each; `pipeline.cli.main` assembles them."""

from __future__ import annotations
