-- The first seq behind all jumps of an events table; null where it has none.
select max(after) from pipeline.seq_jumps where events_table = %(name)s
