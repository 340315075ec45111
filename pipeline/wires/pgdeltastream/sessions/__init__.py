"""A session at the source: a slot of its own that a client streams by itself, and the snapshot exported with it."""
