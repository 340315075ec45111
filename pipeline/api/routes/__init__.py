"""The endpoints, one module for each part of the API; none imports another."""

from __future__ import annotations
