-- Store the report of a follower's applier; a position never goes back.
update pipeline.followers f
set state = %(state)s, reason = %(reason)s, remedy = %(remedy)s, reported_at = clock_timestamp(),
    seq = greatest(f.seq, %(seq)s::bigint),
    commit_lsn = case when %(seq)s::bigint >= f.seq then %(commit_lsn)s else f.commit_lsn end,
    committed_at = case when %(seq)s::bigint >= f.seq then %(committed_at)s else f.committed_at end
where f.id = %(id)s
