"""Reads the log once for all followers of the same tables whose positions are about the same, mostly at its head."""
