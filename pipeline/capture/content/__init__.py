"""What tables hold, compared with what the log says of them."""

from __future__ import annotations
