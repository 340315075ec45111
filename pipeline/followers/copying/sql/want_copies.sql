-- Tables that are to be copied before the log is applied.
insert into pipeline_follower.copies (source_database_id, follower, table_oid)
select %(source)s, %(follower)s, t.oid from unnest(%(oids)s::bigint[]) t (oid)
