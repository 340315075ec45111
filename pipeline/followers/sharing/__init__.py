"""Read once for all followers of the same tables that are at the same place of the log: at its head, most of the
time."""
