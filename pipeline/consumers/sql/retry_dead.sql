-- Put dead letters back into the queue.
select pipeline.retry_dead(%(name)s::text, %(seqs)s::bigint[]) as count
