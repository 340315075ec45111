-- A locked relation in the snapshot in which it is read. `shape` changes if anything changes in its description.
select pg_catalog.pg_current_snapshot()::text as snapshot, pg_catalog.pg_relation_filenode(c.oid)::bigint as file,
    coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)::bigint as table_oid,
    c.oid = to_regclass(%(name)s) as same_name,
    pg_catalog.has_any_column_privilege(c.oid, 'select') as readable,
    md5(concat_ws(' ', c.xmin, c.ctid, n.xmin, n.ctid,
        (select string_agg(a.xmin || ',' || a.ctid, ' ' order by a.attnum) from pg_catalog.pg_attribute a where a.attrelid = c.oid),
        (select string_agg(i.xmin || ',' || i.ctid, ' ' order by i.indexrelid) from pg_catalog.pg_index i where i.indrelid = c.oid),
        (select string_agg(i.xmin || ',' || i.ctid, ' ' order by i.indexrelid) from pg_catalog.pg_index i
            where i.indrelid = pg_catalog.pg_partition_root(c.oid)),
        (select string_agg(x.oid || ',' || x.xmin || ',' || x.ctid, ' ' order by x.oid) from pg_catalog.pg_class x
            where x.oid in (select relid from pg_catalog.pg_partition_ancestors(c.oid))),
        (select string_agg(r.oid || ',' || r.xmin || ',' || r.ctid, ' ' order by r.oid) from pg_catalog.pg_publication_rel r
            where r.prrelid = c.oid or r.prrelid in (select relid from pg_catalog.pg_partition_ancestors(c.oid))),
        (select string_agg(p.oid || ',' || p.xmin || ',' || p.ctid, ' ' order by p.oid) from pg_catalog.pg_publication p
            where p.pubname = any(%(publications)s)),
        (select string_agg(s.oid || ',' || s.xmin || ',' || s.ctid, ' ' order by s.oid)
            from pg_catalog.pg_publication_namespace s)
    )) as shape
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = %(oid)s
