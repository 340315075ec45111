-- Ranges of a backfill that are not to be read for now, or that are again.
update pipeline.snapshot_ranges set state = case when %(hold)s then 'held' else 'planned' end
where backfill_id = %(backfill)s and state = case when %(hold)s then 'planned' else 'held' end
