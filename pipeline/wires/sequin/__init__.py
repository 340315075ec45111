"""What clients of Sequin's HTTP pull consumers speak: items of records consumers are received and acknowledged."""

from __future__ import annotations
