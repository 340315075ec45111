-- Return all followers by name, or only the follower with this name, with their tables and how far each is behind.
select f.id, f.source_id, f.name, f.dsn, f.tables, f.copy as copy_mode, f.schema_mode, f.ddl, f.on_rewrite, f.truncates,
    f.system_identifier, f.database_oid::bigint as database_oid, f.database_name, f.wanted, f.made_at, f.made_seq,
    f.seq, f.commit_lsn, f.committed_at, f.state, f.reason, f.remedy, f.reported_at,
    pipeline.seqs_between(null, f.seq, h.seq) as lag_seqs, pipeline.seqs_between(null, 0, f.seq) as passed_seqs,
    coalesce(greatest(extract(epoch from clock_timestamp() - first.committed_at), 0), 0)::float8 as lag_seconds,
    coalesce((
        select jsonb_agg(jsonb_build_object(
            'table_oid', t.table_oid, 'table_schema', t.table_schema, 'table_name', t.table_name,
            'state', t.state, 'reason', t.reason, 'remedy', t.remedy
        ) order by t.table_schema, t.table_name)
        from pipeline.follower_tables t where t.follower_id = f.id
    ), '[]') as listed_tables
from pipeline.followers f
cross join (select coalesce((select seq from pipeline.events order by seq desc limit 1), 0) as seq) h
left join lateral (
    select e.committed_at from pipeline.events e where e.seq > f.seq order by e.seq limit 1
) first on true
where %(name)s::text is null or f.name = %(name)s
order by f.name
