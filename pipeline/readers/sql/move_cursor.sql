-- Acknowledge up to a seq, whoever reads.
select pipeline.advance(%(name)s::text, %(seq)s::bigint) as position
