-- Acknowledge up to a seq, whichever client reads the cursor.
select pipeline.advance(%(name)s::text, %(seq)s::bigint) as position
