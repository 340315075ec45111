-- A table is compared: what differs is planned in this transaction. No row when another session has taken it over.
delete from pipeline.snapshot_ranges where id = %(id)s and token = %(token)s and state = 'reading' and compares
