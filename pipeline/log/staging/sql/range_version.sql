-- The form of the table that a range was read of; no row for a marker that nothing waits for.
select version from pipeline.snapshot_ranges where token = %(token)s::uuid and state in ('staged', 'placed')
