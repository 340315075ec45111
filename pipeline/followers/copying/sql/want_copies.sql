-- Tables that are to be copied; whatever they have is emptied or refused then.
insert into pipeline_follower.copies (source_database_id, follower, table_oid)
select %(source)s, %(follower)s, t.oid from unnest(%(oids)s::bigint[]) t (oid)
on conflict (source_database_id, follower, table_oid) do update
    set source_epoch = null, snapshot = null, lsn = null, form = null, rows = null, copied_at = null
