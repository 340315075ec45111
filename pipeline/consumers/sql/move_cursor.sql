-- Acknowledge the events up to a seq, even if another client reads the cursor.
select pipeline.advance(%(name)s::text, %(seq)s::bigint) as position
