"""`python -m tests.torture.ordinary_schema`."""

from __future__ import annotations

import sys

from tests.torture.ordinary_schema.trials import main

if __name__ == "__main__":
    sys.exit(main())
