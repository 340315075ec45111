"""`pipeline demo`: a shop's writers on an embedded Postgres, shown live, and a check against their own record."""

from __future__ import annotations

from pipeline.demo.show import run as run
