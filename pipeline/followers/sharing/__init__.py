"""Reads the log once for all followers of the same tables at the same place of the log, which is mostly its head."""
