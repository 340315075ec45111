"""A client library for programs that connect to the pipeline database themselves. It does not use the HTTP server.

`EventLog` reads the log; `Queue` and `AsyncQueue` process the items of a records consumer.
"""

from __future__ import annotations

from pipeline.client.async_queue import AsyncQueue
from pipeline.client.event_log import Event, EventLog
from pipeline.client.held_items import Item
from pipeline.client.queue import Queue

__all__ = ["AsyncQueue", "Event", "EventLog", "Item", "Queue"]
