-- Store that values of a table changed without an event, or the names of their attributes. A rewrite that is found
-- again gets the place that is known now.
insert into pipeline.rewrites (
    source_id, epoch, relation_oid, table_schema, table_name, columns, kind, version, from_lsn, from_idx, settled_at)
values (
    %(source)s, %(epoch)s, %(relation_oid)s, %(table_schema)s, %(table_name)s, %(columns)s, %(kind)s, %(version)s,
    %(from_lsn)s, %(from_idx)s, case when %(is_settled)s then now() end)
on conflict (source_id, epoch, relation_oid, kind, version) do update
set from_lsn = coalesce(excluded.from_lsn, rewrites.from_lsn),
    from_idx = coalesce(excluded.from_idx, rewrites.from_idx)
