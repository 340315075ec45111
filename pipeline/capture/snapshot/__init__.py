"""Rows that were in a table before its changes were captured, or that are read again."""
