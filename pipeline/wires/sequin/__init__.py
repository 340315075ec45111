"""The protocol of Sequin's HTTP pull consumers: clients receive and acknowledge items of records consumers."""

from __future__ import annotations
