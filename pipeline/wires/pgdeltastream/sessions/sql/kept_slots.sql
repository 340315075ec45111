-- The slots of sessions that may exist, of every source.
select slot from pipeline.sessions where dropped_at is null
