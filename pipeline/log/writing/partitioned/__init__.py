"""A backlog that becomes partitions of the events table: filled by the worker, attached by the shuffler."""
