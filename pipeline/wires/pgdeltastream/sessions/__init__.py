"""Sessions at the source: each has a slot that its client streams, and the snapshot that was exported with it."""
