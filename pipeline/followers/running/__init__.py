"""The role `followers`: a process for each follower, which applies the log to it for as long as it is wanted."""

from __future__ import annotations
