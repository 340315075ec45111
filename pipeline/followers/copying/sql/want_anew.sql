-- Tables that are to be copied while the others follow the log; not those that are copied before that anyway.
insert into pipeline_follower.copies as c (source_database_id, follower, table_oid, wanted_seq, wanted_at, generation)
select %(source)s, %(follower)s, t.oid, %(seq)s, clock_timestamp(), %(generation)s
from unnest(%(oids)s::bigint[]) t (oid)
on conflict (source_database_id, follower, table_oid) do update
    set source_epoch = null, snapshot = null, lsn = null, form = null, rows = null, copied_at = null,
        wanted_seq = excluded.wanted_seq, wanted_at = excluded.wanted_at, generation = excluded.generation
    where c.snapshot is not null or c.wanted_seq is not null
