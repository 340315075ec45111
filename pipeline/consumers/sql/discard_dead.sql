-- Delete dead letters.
select pipeline.discard_dead(%(name)s::text, %(seqs)s::bigint[]) as count
