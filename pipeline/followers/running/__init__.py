"""The role `followers`: runs a process for each follower, which applies the log to the follower."""

from __future__ import annotations
